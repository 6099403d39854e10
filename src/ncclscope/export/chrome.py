"""A trace in Chrome's JSON Trace Event Format, for chrome://tracing, the Perfetto UI and scripts.

Every slice is one complete event; a slice that has not ended is a begin event without an end.
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ncclscope._version import __version__
from ncclscope.analysis.selection import Selection
from ncclscope.arrays.types import Ints
from ncclscope.export.result import ExportResult
from ncclscope.export.trace_file import write_trace
from ncclscope.export.trace_layers import drawn_times, selected_rows
from ncclscope.export.trace_model import (
    OPEN,
    Argument,
    Layer,
    Rank,
    Slices,
    Track,
    Tracks,
    distinct_rows,
    ranks_of,
    slice_batches,
)
from ncclscope.model.completeness import SIMULATION
from ncclscope.model.model import Model, Progress
from ncclscope.model.schema import NONE
from ncclscope.model.sql_views import rows_of_table

_IN_FLIGHT, _BANDWIDTH = "bytes in flight", "bus bandwidth"


def write_chrome(
    model: Model,
    selection: Selection,
    path: Path,
    operations_only: bool = False,
    critical_path: bool = False,
    progress: Progress | None = None,
) -> ExportResult:
    """Writes the selected operations, unless `operations_only` the work below them, and with
    `critical_path` the critical path of the selected time.
    """
    ranks = ranks_of(model)
    first_rows = _first_rows(model, selection, ranks)
    return write_trace(
        model, selection, path, operations_only, critical_path, progress, ranks=ranks,
        open_rank=partial(_RankTrace, ranks=len(ranks), first_rows=first_rows),
        head=_head(model), tail=b"\n]}\n",
    )  # fmt: skip


def _head(model: Model) -> bytes:
    """The text before the events.

    Times are CLOCK_MONOTONIC of the first node; baseTimeNanoseconds makes them wall-clock times.
    """
    facts = {
        "displayTimeUnit": "ns",
        "baseTimeNanoseconds": model.realtime_offset_ns,
        "otherData": {
            "producer": f"ncclscope {__version__}",
            "capture": model.path.name,
            "completeness": model.completeness.line(),
            **({"simulation": SIMULATION} if model.completeness.is_simulation else {}),
        },
    }
    first = {"ph": "M", "name": "trace_source", "pid": 1, "tid": 1, "args": {"name": "ncclscope"}}
    return (json.dumps(facts)[:-1] + ', "traceEvents": [\n' + json.dumps(first)).encode()


def _first_rows(model: Model, selection: Selection, ranks: Sequence[Rank]) -> Ints:
    """The operation of each instance that is drawn first: the arrow through all begins there."""
    instances = rows_of_table(model, "instances")
    earliest = np.full(instances, OPEN, np.int64)
    first = np.full(instances, np.iinfo(np.int64).max, np.int64)
    for times_known in (False, True):
        for rank in ranks:
            rows = selected_rows(model, selection, rank)
            some = np.concatenate([rows.whole, rows.parts])
            instance = np.asarray(model.tables["operations"]["instance"][some]).astype(np.int64)
            some, instance = some[instance != NONE], instance[instance != NONE]
            start = drawn_times(model, some)[0]
            if times_known:
                is_first = start == earliest[instance]
                np.minimum.at(first, instance[is_first], some[is_first])
            else:
                np.minimum.at(earliest, instance, start)
    return first


class _RankTrace:
    """A rank's part of a trace while it is written."""

    def __init__(self, out: BinaryIO, rank: Rank, ranks: int, first_rows: Ints) -> None:
        self._out, self._rank, self._first_rows = out, rank, first_rows
        self._tracks = Tracks(rank, ranks, 1)
        self._drawn: list[tuple[Ints, ...]] = []  # operations: rows, tracks, starts

    def describe(self) -> None:
        """Writes the rank as a process."""
        rank = self._rank
        self._metadata("process_name", 0, {"name": rank.name})
        self._metadata("process_labels", 0, {"labels": ", ".join(rank.labels)})
        self._metadata("process_sort_index", 0, {"sort_index": rank.number})

    def _metadata(self, name: str, thread: int, values: dict[str, str | int]) -> None:
        event = {"ph": "M", "name": name, "pid": self._rank.number, "args": values}
        self._events([json.dumps(event | ({"tid": thread} if thread else {}))])

    def _events(self, events: Sequence[str]) -> None:
        if events:
            self._out.write((",\n" + ",\n".join(events)).encode())

    def write_layer(self, layer: Layer) -> None:
        """Writes all slices of a layer, its counters, and arrows to the work below."""
        for slices in slice_batches(layer, self._tracks):
            for track in self._tracks.undescribed:
                self._describe_track(track)
            self._tracks.undescribed.clear()
            self._events(list(self._slices(slices)))
            if slices.details.row is not None:
                # Viewers attach an arrow to the slice that is open then; a moment is never open.
                long = slices.end_ns > slices.start_ns
                columns = (slices.details.row, slices.track, slices.start_ns)
                self._drawn.append(tuple(column[long] for column in columns))
            if slices.details.parent is not None:
                self._events(list(self._arrows(slices)))
            self._events(self._counters(slices))

    def _describe_track(self, track: Track) -> None:
        name = f"{track.group.partition(': ')[0]} {track.name}" if track.group else track.name
        name += f" ({track.lane + 1})" if track.lane else ""
        self._metadata("thread_name", track.number, {"name": name})
        self._metadata("thread_sort_index", track.number, {"sort_index": track.number})

    def _slices(self, slices: Slices) -> Iterator[str]:
        details, names = slices.details, [json.dumps(name) for name in slices.layer.names]
        head = f'"cat":"{slices.layer.category}","pid":{self._rank.number},"name":'
        lasting = np.where(slices.end_ns == OPEN, NONE, slices.end_ns - slices.start_ns)
        for name, track, start, duration, flow, arguments in zip(
            (details.name % len(names)).tolist(),
            slices.track.tolist(),
            slices.start_ns.tolist(),
            lasting.tolist(),
            self._flows(slices),
            _arguments(details.arguments, len(slices.start_ns)),
            strict=True,
        ):
            kind = f'"X","dur":{_us(duration)}' if duration != NONE else '"B"'
            yield (
                f'{{"ph":{kind},"ts":{_us(start)},{head}{names[name]},"tid":{track}{flow},'
                f'"args":{{{arguments}}}}}'
            )

    def _flows(self, slices: Slices) -> list[str]:
        """Each slice's members for the arrow through all operations of its instance."""
        row, details = slices.details.row, slices.details
        if row is None:
            return [""] * len(slices.start_ns)
        instance = details.flows[0] - 1
        known = instance >= 0
        begins = np.zeros(len(instance), np.bool_)
        begins[known] = self._first_rows[instance[known]] == row[known]
        return [
            ""
            if number < 0
            else f',"bind_id":"{_INSTANCES + number:#x}","flow_out":true{"" if begin else _FLOW_IN}'
            for number, begin in zip(instance.tolist(), begins.tolist(), strict=True)
        ]

    def _drawn_in_order(self) -> tuple[Ints, ...]:
        """Rows of operations that were drawn, sorted, with their tracks and starts."""
        if len(self._drawn) > 1:
            rows, tracks, starts = (np.concatenate(some) for some in zip(*self._drawn, strict=True))
            order = np.argsort(rows, kind="stable")
            self._drawn = [(rows[order], tracks[order], starts[order])]
        return self._drawn[0] if self._drawn else (np.empty(0, np.int64),) * 3

    def _arrows(self, slices: Slices) -> Iterator[str]:
        """Arrows between operations and the work below them, from the earlier to the later."""
        parent, (rows, tracks, starts) = slices.details.parent, self._drawn_in_order()
        if parent is None or not len(rows):  # there is nothing above, or only moments
            return
        at = np.minimum(np.searchsorted(rows, parent), len(rows) - 1)
        some = np.flatnonzero((rows[at] == parent) & (slices.end_ns > slices.start_ns))
        at = at[some]
        head = f'"cat":"{slices.layer.category}","name":"of","pid":{self._rank.number}'
        columns = (
            slices.details.flows[-1][some], starts[at], tracks[at], slices.start_ns[some],
            slices.track[some],
        )  # fmt: skip
        for flow, above, upper, below, lower in zip(*(c.tolist() for c in columns), strict=True):
            ends = ((above, upper), (below, lower))
            for kind, (time, track) in zip(_ARROW, sorted(ends, key=lambda e: e[0]), strict=True):
                yield f'{{"ph":{kind},"id":"{flow:#x}",{head},"tid":{track},"ts":{_us(time)}}}'

    def _counters(self, slices: Slices) -> list[str]:
        """Counters in the order of time."""
        if slices.bytes_in_flight is None or slices.bandwidth_kbs is None:
            return []
        ends = slices.ends
        time = np.concatenate([ends.time_ns, slices.start_ns])
        order = np.argsort(time, kind="stable")
        events = []
        for name, unit, scale, at_end, at_start in (
            (_IN_FLIGHT, "bytes", 1, ends.bytes_in_flight, slices.bytes_in_flight),
            (_BANDWIDTH, "B/s", 1000, ends.bandwidth_kbs, slices.bandwidth_kbs),
        ):
            assert at_end is not None
            values = np.concatenate([at_end, at_start]) * scale
            head = f'"ph":"C","name":"{name}","pid":{self._rank.number}'
            events += [
                f'{{{head},"ts":{_us(when)},"args":{{"{unit}":{value}}}}}'
                for when, value in zip(time[order].tolist(), values[order].tolist(), strict=True)
            ]
        return events


_FLOW_IN = ',"flow_in":true'
_ARROW = ('"s"', '"f","bp":"e"')  # its beginning, its end
_INSTANCES = 1 << 40  # above the ids that trace processors give to arrows with names


def _us(time_ns: int) -> str:
    """Microseconds with three decimals: exact to the ns."""
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"


def _arguments(arguments: Sequence[Argument], rows: int) -> list[str]:
    """Arguments of each slice as members of a JSON object.

    Those that do not vary are encoded once for all slices with equal values.
    """
    shared = [argument for argument in arguments if not argument.varies]
    first, place = distinct_rows([argument.values for argument in shared])
    texts = _members(shared, first) if shared else []
    common = [texts[at] for at in place.tolist()] if shared else [""] * rows
    own = _members([argument for argument in arguments if argument.varies], np.arange(rows))
    return [",".join(filter(None, pair)) for pair in zip(common, own, strict=True)]


def _members(arguments: Sequence[Argument], rows: Ints) -> list[str]:
    columns = []
    for argument in arguments:
        key, values = json.dumps(argument.name), argument.values[rows].tolist()
        if argument.words is None:
            columns.append([f"{key}:{value}" if value >= 0 else "" for value in values])
        else:
            words = [f"{key}:{json.dumps(word)}" for word in argument.words]
            columns.append([words[value] if value >= 0 else "" for value in values])
    return [",".join(filter(None, members)) for members in zip(*columns, strict=True)]
