"""Layers of a rank's timeline below operations: channels, proxy ops and proxy steps."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.selection import Selection
from ncclscope.arrays.types import Ints
from ncclscope.export.trace_model import OPEN, Argument, Details, Layer, Rank
from ncclscope.humanize import printable
from ncclscope.model.detail_tables import details_of_process
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE, Columns

CHILD_FLOWS = 1 << 60  # ids of flows from operations to the work below them begin here


@dataclass(frozen=True, slots=True)
class ChildRows:
    """Work below operations: its columns, and the operation and the flow of each row."""

    columns: Columns
    operation: Ints
    flow: Ints


@dataclass(frozen=True, slots=True)
class AllChildren:
    """All work below a rank's operations."""

    parts: ChildRows
    channels: ChildRows
    proxy_ops: ChildRows


def children_of(
    model: Model, rank: Rank, whole: Ints, parts: Ints, selection: Selection
) -> AllChildren:
    """Work below the operations of these rows, with a flow each."""
    drawn = np.sort(np.concatenate([whole, parts]))
    channels = _select(_details(model, "channels", rank), drawn, None)
    for_others = _selection_for_others(model, rank, selection)
    proxy_ops = _select(_details(model, "proxy_ops", rank), drawn, for_others)
    operations = [
        np.asarray(model.tables["operations"]["part_of"][parts]).astype(np.int64),
        channels["operation"].astype(np.int64),
        proxy_ops["operation"].astype(np.int64),
    ]
    # Flows below one operation have consecutive ids: it names them by the first and their number.
    order = np.argsort(np.concatenate(operations), kind="stable")
    flow = np.empty(len(order), np.int64)
    flow[order] = CHILD_FLOWS + (rank.number << 32) + np.arange(len(order))
    flow[np.concatenate(operations) == NONE] = NONE
    cuts = np.cumsum([len(rows) for rows in operations])[:-1]
    flows = np.split(flow, cuts)
    return AllChildren(
        ChildRows({"row": parts}, operations[0], flows[0]),
        ChildRows(channels, operations[1], flows[1]),
        ChildRows(proxy_ops, operations[2], flows[2]),
    )


def _details(model: Model, table: str, rank: Rank) -> Columns:
    columns = details_of_process(model, table, rank.process)
    return columns if columns is not None else {}


def _selection_for_others(model: Model, rank: Rank, selection: Selection) -> Selection | None:
    """Which network work for other processes (PXN) to draw; None: nothing of it.

    It has no operation in this process, so only times can select it. It is drawn with the first
    rank of its process.
    """
    by_name = selection.communicators is not None or selection.functions is not None
    is_first = model.processes[rank.process].global_rank in (NONE, rank.global_rank)
    return selection if is_first and not by_name else None


def _select(columns: Columns, drawn: Ints, for_others: Selection | None) -> Columns:
    """Rows of drawn operations, and rows without an operation that `for_others` selects."""
    if not columns:
        empty = np.empty(0, np.int64)
        return dict.fromkeys(("operation", "start_ns", "event"), empty)
    operation = columns["operation"].astype(np.int64)
    keep = np.isin(operation, drawn)
    if for_others is not None:
        since, until = for_others.since_ns or 0, for_others.until_ns or OPEN
        start = columns["start_ns"]
        keep |= (operation == NONE) & (start >= since) & (start < until)
    return {name: values[keep] for name, values in columns.items()}


def flows_to_children(children: list[ChildRows]) -> tuple[Ints, Ints, Ints]:
    """Rows of operations with children, the first flow of each, and the number of its flows."""
    parents = np.concatenate([np.empty(0, np.int64), *(some.operation for some in children)])
    flow = np.concatenate([np.empty(0, np.int64), *(some.flow for some in children)])
    known = parents != NONE
    order = np.argsort(flow[known], kind="stable")
    rows, first, count = np.unique(parents[known][order], return_index=True, return_counts=True)
    return rows, flow[known][order][first], count


def channel_layer(model: Model, rank: Rank, channels: ChildRows) -> Layer:
    """Kernels by channel, at their GPU stamps, else at the host's times."""
    ops, columns = model.tables["operations"], channels.columns
    if not len(channels.operation):
        return _empty_layer(rank, "channel")
    stamped = (columns["start_ns"] >= 0) & (columns["end_ns"] >= columns["start_ns"])
    start = np.where(stamped, columns["start_ns"], columns["seen_start_ns"]).astype(np.int64)
    end = np.where(stamped, columns["end_ns"], columns["seen_end_ns"]).astype(np.int64)
    end = np.where(end == NONE, OPEN, np.maximum(end, start))
    drawn = np.flatnonzero(start >= 0)
    communicator = ops["communicator"][channels.operation].astype(np.int64)
    names, track = _tracks_by_key(
        model, "channels", communicator[drawn], columns["channel"][drawn].astype(np.int64),
        lambda key: f"channel {key}",
    )  # fmt: skip

    def details(places: Ints) -> Details:
        some = drawn[places]
        stamp = columns["stamp"][some].astype(np.int64)
        return Details(
            ops["function"][channels.operation[some]].astype(np.int64),
            [
                Argument("channel", columns["channel"][some].astype(np.int64)),
                Argument("stamp", stamp, model.words["stamp"]),
                Argument("operation", channels.operation[some], varies=True),
            ],
            [channels.flow[some]],
            parent=channels.operation[some],
        )

    functions = [*model.words["function"], "?"]
    return Layer(rank, "channel", names, functions, track, start[drawn], end[drawn], details)


def proxy_op_layer(model: Model, rank: Rank, proxy_ops: ChildRows) -> Layer:
    """Network work by communicator, channel, direction and peer."""
    columns = proxy_ops.columns
    if not len(proxy_ops.operation):
        return _empty_layer(rank, "proxy")
    start, end = columns["start_ns"].astype(np.int64), columns["end_ns"].astype(np.int64)
    drawn = np.flatnonzero(start >= 0)
    names, track = _proxy_tracks(model, columns, drawn, "")

    def details(places: Ints) -> Details:
        some = drawn[places]
        return Details(
            columns["form"][some].astype(np.int64),
            [
                Argument(name, columns[name][some].astype(np.int64))
                for name in ("channel", "peer", "steps", "chunk_bytes", "pid")
            ]
            + [Argument("operation", proxy_ops.operation[some], varies=True)],
            [proxy_ops.flow[some]],
            parent=proxy_ops.operation[some],
        )

    end = np.where(end == NONE, OPEN, np.maximum(end, start))
    return Layer(
        rank, "proxy", names, [*model.words["form"], "?"], track, start[drawn], end[drawn], details
    )


def proxy_step_layer(model: Model, rank: Rank, proxy_ops: ChildRows) -> Layer:
    """Steps of the drawn proxy ops; only captures of mode full have any."""
    process = model.processes[rank.process]
    has_steps = "full" in (process.mode, process.fullest_mode) and len(proxy_ops.operation)
    columns = _details(model, "proxy_steps", rank) if has_steps else {}
    if not columns:
        return _empty_layer(rank, "step")
    order = np.argsort(proxy_ops.columns["event"], kind="stable")
    events = proxy_ops.columns["event"][order]
    at = np.minimum(np.searchsorted(events, columns["proxy_op"]), len(events) - 1)
    keep = (events[at] == columns["proxy_op"]) & (columns["start_ns"] >= 0)
    steps = {name: values[keep].astype(np.int64) for name, values in columns.items()}
    steps["communicator"] = proxy_ops.columns["communicator"][order][at[keep]].astype(np.int64)
    start, end = steps["start_ns"], steps["end_ns"]
    names, track = _proxy_tracks(model, steps, np.arange(len(start)), ", steps")
    waits = ("gpu", "peer", "network", "flush")

    def details(places: Ints) -> Details:
        some = {name: values[places] for name, values in steps.items()}
        return Details(
            some["form"],
            [Argument("step", some["step"]), Argument("size_bytes", some["size_bytes"])]
            + [
                Argument(
                    f"{what}_after_ns",
                    np.where(
                        some[f"{what}_since_ns"] >= some["start_ns"],
                        some[f"{what}_since_ns"] - some["start_ns"],
                        NONE,
                    ),
                    varies=True,
                )
                for what in waits
            ]
            + [Argument("operation", some["operation"], varies=True)],
        )

    end = np.where(end == NONE, OPEN, np.maximum(end, start))
    return Layer(rank, "step", names, [*model.words["form"], "?"], track, start, end, details)


def _empty_layer(rank: Rank, category: str) -> Layer:
    empty = np.empty(0, np.int64)
    return Layer(rank, category, [], [], empty, empty, empty, lambda places: Details(places, []))


def _proxy_tracks(
    model: Model, columns: Columns, rows: Ints, what: str
) -> tuple[list[tuple[str, str]], Ints]:
    """A track for each communicator, channel, direction and peer."""
    channel, peer = (columns[name][rows].astype(np.int64) for name in ("channel", "peer"))
    forms = model.words["form"]
    key = ((channel + 1) << 40) | ((peer + 1) << 8) | columns["form"][rows].astype(np.int64)

    def name(key: int) -> str:
        direction = "to" if forms[key & 255] == "send" else "from"
        return f"channel {(key >> 40) - 1} {direction} {((key >> 8) & 0xFFFFFFFF) - 1}{what}"

    return _tracks_by_key(model, "proxy", columns["communicator"][rows].astype(np.int64), key, name)


def _tracks_by_key(
    model: Model, group: str, communicator: Ints, key: Ints, name: Callable[[int], str]
) -> tuple[list[tuple[str, str]], Ints]:
    """Tracks sorted by communicator and key, and the place of each row's track among them."""
    keys, of_key = np.unique(key, return_inverse=True)
    both, track = np.unique(communicator * len(keys) + of_key, return_inverse=True)
    names = []
    for pair in both.tolist():
        row, place = divmod(pair, len(keys))
        owner = printable(model.communicator_names[row]) if row >= 0 else "others"
        names.append((f"{owner}: {group}", name(int(keys[place]))))
    return names, track
