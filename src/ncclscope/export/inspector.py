"""Logs as NCCL Inspector writes them (format v4.0, keys of NCCL 2.30), one file per process.

Sizes and times are the model's. Inspector knows the sends and receives that make up an AlltoAll,
not the AlltoAll: so they are written, and the AlltoAll that was inferred from them is not.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ncclscope.analysis.selection import Selection
from ncclscope.arrays.types import Ints
from ncclscope.export.result import ExportResult
from ncclscope.humanize import printable
from ncclscope.model.detail_tables import details_of_process
from ncclscope.model.model import Model, Progress, process_rows
from ncclscope.model.process.inferred_collectives import has_parts
from ncclscope.model.schema import NONE, Columns
from ncclscope.nccl.bandwidth import bandwidth_gbs, bus_factor
from ncclscope.nccl.functions import INSPECTOR_ONE_RANK
from ncclscope.output_files import check_directory, holds_only, writing_directory

VERSION = "v4.0"
MECHANISM = "nccl_profiler_interface"
FILES = "*-pid*.log"
ROWS = 1 << 14  # converted at once
# Inspector's names of sources.
TIMING_SOURCES = {
    "gpu": "kernel_gpu",
    "gpu-repaired": "kernel_gpu",
    "gpu-partial": "kernel_gpu",
    "gpu-early": "kernel_gpu",
    "gpu-event": "kernel_gpu",
    "gpu-event-rough": "kernel_gpu",
    "gpu-event-upper": "kernel_gpu",
    "host": "kernel_cpu",
    "proxy": "collective_cpu",
    "enqueue": "collective_cpu",
}
# Inspector gives the bytes of one rank for these, nccl-tests those of all ranks.
_COLUMNS = (
    "communicator", "rank", "form", "function", "size_bytes", "peer", "duration_ns", "end_ns",
    "enqueue_ns", "source", "sequence", "call_order",
)  # fmt: skip


def write_inspector(
    model: Model,
    selection: Selection,
    path: Path,
    force: bool = False,
    verbose: bool = False,
    progress: Progress | None = None,
) -> ExportResult:
    """Writes the selected operations that have a duration, in the order of their ends."""
    check_directory(path, force, holds_only(FILES), "set of Inspector's logs")
    written = ExportResult(0)
    with writing_directory(path) as folder:
        for number in range(len(model.processes)):
            file = folder / _file_name(model, number, folder)
            written += _write_process(model, selection, number, file, verbose)
            if progress:
                progress(number + 1, len(model.processes))
    return written


def _file_name(model: Model, number: int, folder: Path) -> str:
    """Inspector's name of a process's file; a second one of that name gets a number.

    Processes in two containers can have the same host name and pid.
    """
    process = model.processes[number]
    host = "".join(c if c.isalnum() or c in "-_." else "_" for c in process.host)[:200] or "unknown"
    name = f"{host}-pid{process.pid}.log"
    return name if not (folder / name).exists() else f"{host}-pid{process.pid}-{number}.log"


def _write_process(
    model: Model, selection: Selection, number: int, file: Path, verbose: bool
) -> ExportResult:
    ops = model.tables["operations"]
    first, last = process_rows(ops, number)
    selected = selection.rows(model, slice(first, last))
    selected &= ~has_parts(ops, slice(first, last))
    timed = np.asarray((ops["duration_ns"][first:last] >= 0) & (ops["end_ns"][first:last] >= 0))
    timed &= ops["communicator"][first:last] >= 0  # a line must name it; damaged captures may not
    rows = first + np.flatnonzero(selected & timed)
    left_out = ExportResult(0, int((selected & ~timed).sum()))
    if not len(rows):
        return left_out  # Inspector writes no file for such a process either
    rows = rows[np.argsort(ops["end_ns"][rows], kind="stable")]
    channels = _Channels(model, number) if verbose else None
    lines = _Lines(model, number, channels)
    with file.open("x", encoding="utf-8") as out:
        for begin in range(0, len(rows), ROWS):
            out.writelines(lines.of(rows[begin : begin + ROWS]))
    return left_out + ExportResult(len(rows))


class _Channels:
    """Channels of a process's operations, for verbose logs."""

    def __init__(self, model: Model, process: int) -> None:
        columns: Columns = details_of_process(model, "channels", process) or {}
        operation = columns.get("operation", np.empty(0, np.int64))
        order = np.argsort(operation, kind="stable")
        self._columns = {name: values[order] for name, values in columns.items()}
        self._operation = operation[order]

    def of(self, row: int) -> list[dict[str, int]]:
        """Number, start, stop and time of the stop callback of each channel, in ns."""
        first, last = np.searchsorted(self._operation, (row, row + 1)).tolist()
        channels = []
        for place in range(first, last):
            row_of = {name: int(values[place]) for name, values in self._columns.items()}
            stamped = row_of["start_ns"] >= 0
            channels.append(
                {
                    "channel_id": row_of["channel"],
                    "start": row_of["start_ns"] if stamped else row_of["seen_start_ns"],
                    "stop": row_of["end_ns"] if stamped else row_of["seen_end_ns"],
                    "record": row_of["seen_end_ns"],
                }
            )
        return channels


class _Lines:
    """Makes the lines of one process."""

    def __init__(self, model: Model, process: int, channels: _Channels | None) -> None:
        row = model.processes[process]
        self._model, self._channels = model, channels
        self._metadata = {
            "inspector_output_format_version": VERSION,
            "git_rev": "",
            "rec_mechanism": MECHANISM,
            **({"simulation": True} if model.completeness.is_simulation else {}),
        }
        self._place = {"hostname": printable(row.host), "pid": row.pid}
        self._headers: dict[tuple[int, int], str] = {}  # by communicator and rank in it
        self._messages: dict[int, int] = {}  # sends and receives so far, by communicator
        self._communicators = model.tables["communicators"]

    def of(self, rows: Ints) -> Iterator[str]:
        """One line for each operation."""
        ops = self._model.tables["operations"]
        columns = [np.asarray(ops[name][rows]).tolist() for name in _COLUMNS]
        for row, *values in zip(rows.tolist(), *columns, strict=True):
            yield self._line(row, dict(zip(_COLUMNS, values, strict=True))) + "\n"

    def _wall_us(self, time_ns: int) -> int:
        return (time_ns + self._model.realtime_offset_ns) // 1000

    def _line(self, row: int, op: dict[str, int]) -> str:
        words = self._model.words
        is_message = words["form"][op["form"]] in ("send", "recv")
        prefix = "p2p" if is_message else "coll"
        perf = self._performance(prefix, op)
        if self._channels is not None:
            perf |= self._traces(prefix, op, self._channels.of(row))
        wall_us = self._wall_us(op["end_ns"])
        metadata = {**self._metadata, "dump_timestamp_us": wall_us, **self._place}
        return (
            f'{{"header":{self._header(op)},"metadata":{_json(metadata)},'
            f'"{prefix}_perf":{_json(perf)}}}'
        )

    def _header(self, op: dict[str, int]) -> str:
        key = row, rank = op["communicator"], op["rank"]
        if key not in self._headers:
            comms = self._communicators
            self._headers[key] = _json(
                {
                    "id": f"{int(comms['id'][row]) & 0xFFFFFFFFFFFFFFFF:#x}",
                    "comm_name": printable(self._model.communicator_names[row]),
                    "rank": rank,
                    "n_ranks": int(comms["ranks"][row]),
                    "nnodes": int(comms["nodes"][row]),
                }
            )
        return self._headers[key]

    def _performance(self, prefix: str, op: dict[str, int]) -> dict[str, Any]:
        words, ranks = self._model.words, int(self._communicators["ranks"][op["communicator"]])
        function = words["function"][op["function"]] if op["function"] >= 0 else "Unknown"
        size = max(op["size_bytes"], 0)
        algorithm = bandwidth_gbs(size, op["duration_ns"]) or 0.0
        perf: dict[str, Any] = {prefix: printable(function)}
        if prefix == "p2p":
            serial = self._messages.get(op["communicator"], 0)
            self._messages[op["communicator"]] = serial + 1
            perf |= {"p2p_sn": serial, "p2p_peer": op["peer"]}
        else:
            perf["coll_sn"] = op["sequence"] if op["sequence"] >= 0 else op["call_order"]
        return perf | {
            f"{prefix}_msg_size_bytes": size // max(ranks, 1)
            if function in INSPECTOR_ONE_RANK
            else size,
            f"{prefix}_exec_time_us": round(op["duration_ns"] / 1000),
            f"{prefix}_timing_source": TIMING_SOURCES.get(
                words["source"][op["source"]], "collective_cpu"
            ),
            f"{prefix}_algobw_gbs": round(algorithm, 6),
            f"{prefix}_busbw_gbs": round(algorithm * (bus_factor(function, ranks) or 1.0), 6),
        }

    def _traces(
        self, prefix: str, op: dict[str, int], channels: list[dict[str, int]]
    ) -> dict[str, Any]:
        """Times of events, and serial numbers by which they are in order within the operation."""
        times = {f"{prefix}_start": op["enqueue_ns"], f"{prefix}_stop": op["enqueue_ns"]}
        moments = [(time, 0, name) for name, time in times.items()]
        for place, channel in enumerate(channels):
            moments += [
                (channel["start"], 1, f"{place} start"),
                (channel["record"], 2, f"{place} record"),
                (max(channel["stop"], channel["record"]), 3, f"{place} stop"),
            ]
        serials = {name: serial for serial, (_, _, name) in enumerate(sorted(moments), 1)}

        def wall_us(time_ns: int) -> int:
            return self._wall_us(time_ns) if time_ns != NONE else 0

        return {
            "event_trace_sn": {f"{name}_sn": serials[name] for name in times}
            | {
                "kernel_events": [
                    {"channel_id": channel["channel_id"]}
                    | {f"kernel_{what}_sn": serials[f"{place} {what}"] for what in _KERNEL}
                    for place, channel in enumerate(channels)
                ]
            },
            "event_trace_ts": {f"{name}_ts": wall_us(time) for name, time in times.items()}
            | {
                "kernel_events": [
                    {"channel_id": channel["channel_id"]}
                    | {f"kernel_{what}_ts": wall_us(channel[what]) for what in _KERNEL}
                    for channel in channels
                ]
            },
        }


_KERNEL = ("start", "stop", "record")
_json = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps makes a new encoder each time
