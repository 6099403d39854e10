"""NCCL Inspector's logs: JSON lines, a record for each operation.

Times are µs. `coll_sn` is NCCL's number by communicator and function, the same on all ranks; a
send's or receive's is a local count. Verbose records add the host's times of calls and kernels.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from ncclscope.ingest.files import DAMAGED, lines_of
from ncclscope.ingest.records import (
    Format,
    ImportedCommunicator,
    ImportedProcess,
    ImportReport,
    Operation,
    Record,
    form_of,
    function_name,
    hash_of,
    nanoseconds,
    number,
    text,
)
from ncclscope.model.completeness import SIMULATION
from ncclscope.model.schema import NONE
from ncclscope.nccl.algorithms import WITH_EXACT_STOP
from ncclscope.nccl.functions import INSPECTOR_ONE_RANK

_US = 1000
# Inspector's timing sources: the model's, and why it is not the GPU.
_SOURCES = {
    "kernel_gpu": ("gpu", ""),
    "kernel_cpu": ("host", "as the host noticed the kernel"),
    "collective_cpu": ("enqueue", "until it was queued: Inspector saw no kernel"),
}
_EARLY = ("gpu-early", "the stop stamp may come before the end")
_UNTIMED = "Inspector gives no time"


def _matches(head: bytes, path: Path) -> bool:
    return head.lstrip().startswith(b"{") and (
        b'"coll_perf"' in head or b'"p2p_perf"' in head or b'"inspector_output_format' in head
    )


def read(path: Path, report: ImportReport) -> Iterator[Record]:
    """Operations of one log; lines that cannot be read are counted."""
    processes: dict[tuple[str, int], ImportedProcess] = {}
    for line in lines_of(path, report):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            operation = _operation(record, path.name, processes)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            operation = None
        if operation is None:
            report.lose(DAMAGED)
        else:
            if record.get("metadata", {}).get("simulation") is True:
                report.note(SIMULATION)  # an export of ncclscope's
            yield operation


@lru_cache(1000)
def _communicator(key: str, name: str, ranks: int, nodes: int) -> ImportedCommunicator:
    return ImportedCommunicator(key, hash_of(key), name, ranks, nodes)


def _operation(
    record: dict[str, Any], file: str, processes: dict[tuple[str, int], ImportedProcess]
) -> Operation | None:
    kind = "coll" if "coll_perf" in record else "p2p"
    perf, header, metadata = record[f"{kind}_perf"], record["header"], record.get("metadata", {})
    host, pid = text(metadata.get("hostname")), number(metadata.get("pid"), (1 << 31) - 1)
    process = processes.get((host, pid))
    if process is None:  # a process that names itself may have several files
        process = processes[host, pid] = ImportedProcess(
            host, pid, "" if host and pid >= 0 else file
        )
    communicator = _communicator(
        text(header["id"]),
        text(header.get("comm_name")),
        max(number(header.get("n_ranks")), 0),
        max(number(header.get("nnodes")), 0),
    )
    function = function_name(text(perf[kind]))
    values: dict[str, int | str] = {
        "rank": number(header.get("rank")),
        "function": function,
        "form": form_of(function),
        "size_bytes": number(perf.get(f"{kind}_msg_size_bytes")),
        "duration_ns": nanoseconds(perf.get(f"{kind}_exec_time_us"), _US),
        "algorithm": text(perf.get("coll_algo")).upper(),
        "protocol": text(perf.get("coll_proto")).upper(),
    }
    if function in INSPECTOR_ONE_RANK and communicator.ranks > 0:
        values["size_bytes"] = number(int(values["size_bytes"]) * communicator.ranks)
    source = _SOURCES.get(text(perf.get(f"{kind}_timing_source")), ("none", _UNTIMED))
    early = kind == "p2p" or values["algorithm"] not in ("", *WITH_EXACT_STOP)
    values["source"], values["reason"] = _EARLY if early and source[0] == "gpu" else source
    if kind == "coll":
        values["sequence"] = number(perf.get("coll_sn"))
    else:
        values["peer"] = number(perf.get("p2p_peer"))
    _add_times(values, record, perf, metadata, kind)
    return Operation(process, communicator, values) if function else None


def _add_times(
    values: dict[str, int | str],
    record: dict[str, Any],
    perf: dict[str, Any],
    metadata: dict[str, Any],
    kind: str,
) -> None:
    """The call's time where the record is verbose, else the time at which it was written.

    Times of kernels are those at which the host noticed them, so they are the operation's own only
    where its duration is the host's, too.
    """
    trace = perf.get("event_trace_ts") or record.get("event_trace_ts") or {}
    call = nanoseconds(trace.get(f"{kind}_start_ts"), _US)
    values["call_ns"] = call
    values["call_end_ns"] = nanoseconds(trace.get(f"{kind}_stop_ts"), _US)
    if call == NONE:
        values["enqueue_ns"] = nanoseconds(metadata.get("dump_timestamp_us"), _US)
    kernels = [event for event in trace.get("kernel_events", []) if isinstance(event, dict)]
    if kernels:
        values["channels"] = len(kernels)
    if values["source"] == "host" and kernels:
        starts = [nanoseconds(event.get("kernel_start_ts"), _US) for event in kernels]
        if NONE not in starts:
            values["start_ns"] = min(starts)


FORMAT = Format(
    "inspector",
    "NCCL Inspector's logs",
    (
        "Inspector's GPU times are those of the longest channel in µs, unchecked: waiting for "
        "other ranks is in them, and when an operation began on the GPU is not",
        "Inspector writes no datatype, and does not say what it dropped",
    ),
    _matches,
    read,
)
