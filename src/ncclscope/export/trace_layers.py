"""The layers of a rank's timeline, from the model: operations, their calls, the work below them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.measures import began_ns, bus_bytes, counts_for_bandwidth
from ncclscope.analysis.selection import Selection
from ncclscope.arrays.types import Bools, Ints
from ncclscope.export.trace_children import (
    ChildRows,
    channel_layer,
    children_of,
    flows_to_children,
    proxy_op_layer,
    proxy_step_layer,
)
from ncclscope.export.trace_model import OPEN, Argument, Details, Layer, Rank
from ncclscope.export.trace_training import training_layers
from ncclscope.humanize import printable
from ncclscope.model.model import Model, process_rows
from ncclscope.model.schema import NONE
from ncclscope.nccl.datatypes import DATATYPES
from ncclscope.nccl.functions import FUNCTIONS
from ncclscope.nccl.torch_names import COLLECTIVE_NAMES

CALL_FLOWS = 1 << 61  # ids of flows from calls to operations begin here
_TORCH_DATATYPES = {name: datatype.torch for name, datatype in DATATYPES.items()}
_WIDE_INPUT = tuple(name for name, function in FUNCTIONS.items() if function.wide_input)
_WIDE_OUTPUT = tuple(name for name, function in FUNCTIONS.items() if function.wide_output)
_UNFINISHED = ("in flight", "never launched")


@dataclass(frozen=True, slots=True)
class SelectedRows:
    """Rows of `operations` of one rank that are drawn."""

    whole: Ints
    parts: Ints  # sends and receives that make up another operation
    untimed: int  # operations without any known time: they cannot be drawn


def selected_rows(model: Model, selection: Selection, rank: Rank) -> SelectedRows:
    """The rank's selected operations."""
    ops = model.tables["operations"]
    first, last = process_rows(ops, rank.process)
    rows = slice(first, last)
    selected = selection.rows(model, rows)
    selected &= np.asarray(ops["global_rank"][rows] == rank.global_rank)
    has_time = began_ns(ops, rows) >= 0
    is_part = np.asarray(ops["part_of"][rows] != NONE)
    return SelectedRows(
        first + np.flatnonzero(selected & has_time & ~is_part),
        first + np.flatnonzero(selected & has_time & is_part),
        int((selected & ~has_time).sum()),
    )


def layers_of(
    model: Model, rank: Rank, rows: SelectedRows, selection: Selection, operations_only: bool
) -> Iterator[Layer]:
    """All layers of a rank."""
    yield from training_layers(model, rank, not operations_only)
    if operations_only:
        yield _operations(model, rank, rows.whole, "", [])
        return
    children = children_of(model, rank, rows.whole, rows.parts, selection)
    below_parts = [children.channels, children.proxy_ops]
    yield _operations(model, rank, rows.whole, "", [children.parts, *below_parts])
    yield _operations(model, rank, rows.parts, "parts", below_parts, children.parts.flow)
    yield _calls(model, rank, rows.whole)
    yield channel_layer(model, rank, children.channels)
    yield proxy_op_layer(model, rank, children.proxy_ops)
    yield proxy_step_layer(model, rank, children.proxy_ops)


def _operations(
    model: Model,
    rank: Rank,
    rows: Ints,
    group: str,
    children: list[ChildRows],
    flow: Ints | None = None,
) -> Layer:
    """Operations of a group of tracks; `flow`: of parts, the flow from the operation above each."""
    ops, words = model.tables["operations"], model.words
    start, end = drawn_times(model, rows)
    tracks = _communicator_tracks(model, group)
    parents, first_flow, flow_count = flows_to_children(children)

    def details(places: Ints) -> Details:
        some = rows[places]
        at = np.searchsorted(parents, some)
        parent = np.minimum(at, max(len(parents) - 1, 0))
        has_children = (parents[parent] == some) if len(parents) else np.zeros(len(some), np.bool_)
        flows = [np.where(ops["instance"][some] != NONE, ops["instance"][some] + 1, NONE)]
        if flow is not None:
            flows.append(flow[places])
        else:
            flows.append(np.where(ops["call_ns"][some] != NONE, CALL_FLOWS + some, NONE))
        return Details(
            np.asarray(ops["function"][some]).astype(np.int64),
            _operation_arguments(model, some),
            flows if children or flow is not None else flows[:1],
            some,
            None if flow is None else np.asarray(ops["part_of"][some]).astype(np.int64),
            first_flow[parent] if len(parents) else None,
            np.where(has_children, flow_count[parent], 0) if len(parents) else None,
        )

    size = np.maximum(np.asarray(ops["size_bytes"][rows]).astype(np.int64), 0)
    return Layer(
        rank, "nccl", tracks, [*words["function"], "?"],
        np.asarray(ops["communicator"][rows]).astype(np.int64) % len(tracks), start, end, details,
        None if group else size, None if group else _bandwidth_kbs(model, rows, end - start),
    )  # fmt: skip


def drawn_times(model: Model, rows: Ints) -> tuple[Ints, Ints]:
    """Start and end of each operation as it is drawn; equal where only its start is known."""
    ops = model.tables["operations"]
    start = began_ns(ops, rows)
    end = np.asarray(ops["end_ns"][rows]).astype(np.int64)
    unfinished = np.isin(
        ops["state"][rows], [model.words["state"].index(name) for name in _UNFINISHED]
    )
    timed = np.asarray((ops["start_ns"][rows] >= 0) & (end >= start))
    return start, np.where(unfinished, OPEN, np.where(timed, end, start))


def _bandwidth_kbs(model: Model, rows: Ints, duration: Ints) -> Ints:
    """Bus bandwidth of each operation; 0 where it has none."""
    moved = bus_bytes(model, rows)
    counts = counts_for_bandwidth(model.tables["operations"], rows) & ~np.isnan(moved)
    counts &= (duration > 0) & (duration < OPEN // 2)
    bandwidth = np.where(counts, moved, 0.0) / np.where(counts, duration, 1) * 1e6
    return np.rint(bandwidth).astype(np.int64)


def _communicator_tracks(model: Model, group: str) -> list[tuple[str, str]]:
    names = [printable(name) for name in model.communicator_names]
    return [(f"{name}: {group}", name) if group else ("", name) for name in [*names, "?"]]


def _operation_arguments(model: Model, rows: Ints) -> list[Argument]:
    ops, words = model.tables["operations"], model.words

    def column(name: str) -> Ints:
        return np.asarray(ops[name][rows]).astype(np.int64)

    function, count, peer = column("function"), column("count"), column("peer")
    communicator = column("communicator")
    ranks = np.append(model.tables["communicators"]["ranks"].astype(np.int64), NONE)[communicator]
    count = np.where((ranks > 0) & (count < OPEN // np.maximum(ranks, 1)), count, NONE)
    sends = function == _code(words["function"], "Send")
    receives = function == _code(words["function"], "Recv")
    source, state = column("source"), column("state")

    def holds_all_ranks(names: tuple[str, ...]) -> Bools:
        """Operations of these functions whose number of elements is known."""
        codes = [code for code, name in enumerate(words["function"]) if name in names]
        return np.isin(function, codes) & (count >= 0)

    reason = np.where(column("reason") > 0, column("reason"), NONE)
    return [
        Argument("Collective name", function, _translate(words["function"], COLLECTIVE_NAMES)),
        Argument("Process Group Name", communicator, _printable(model.communicator_names)),
        Argument("Seq", column("call_order"), varies=True),
        Argument("Group size", ranks),
        Argument("Rank", column("rank")),
        Argument("In msg nelems", np.where(holds_all_ranks(_WIDE_INPUT), count * ranks, count)),
        Argument("Out msg nelems", np.where(holds_all_ranks(_WIDE_OUTPUT), count * ranks, count)),
        Argument("dtype", column("datatype"), _translate(words["datatype"], _TORCH_DATATYPES)),
        Argument("Src Rank", np.where(receives, peer, NONE)),
        Argument("Dst Rank", np.where(sends, peer, NONE)),
        Argument("root", column("root")),
        Argument("size_bytes", column("size_bytes")),
        Argument("algorithm", column("algorithm"), _printable(words["algorithm"])),
        Argument("protocol", column("protocol"), _printable(words["protocol"])),
        Argument("channels", column("channels")),
        Argument("wait_ns", column("wait_ns"), varies=True),
        Argument("wire_ns", column("wire_ns"), varies=True),
        Argument("source", source, words["source"]),
        Argument("reason", reason, words["reason"]),
        Argument("state", np.where(state == 0, NONE, state), words["state"]),
        Argument("replay", np.where(column("replay") == 1, 1, NONE)),
        Argument("inferred", np.where(column("inferred") == 1, 1, NONE)),
        Argument("sequence", column("sequence"), varies=True),
        Argument("part_of", column("part_of"), varies=True),
        Argument("operation", rows, varies=True),
        *(_context_arguments(model, rows) if model.has_context else _step_arguments(model, rows)),
    ]


def _step_arguments(model: Model, rows: Ints) -> list[Argument]:
    """The step of operations, where the period of calls shows it."""
    if not len(model.tables["steps"]["step"]):
        return []
    return [Argument("step", np.asarray(model.tables["operations"]["step"][rows]).astype(np.int64))]


def _context_arguments(model: Model, rows: Ints) -> list[Argument]:
    """Step, phase and module of operations, and the dimension of their communicator."""
    ops = model.tables["operations"]

    def column(name: str) -> Ints:
        return np.asarray(ops[name][rows]).astype(np.int64)

    dimensions = _printable(model.dimensions)
    return [
        Argument("step", column("step")),
        Argument("phase", column("phase"), model.words["phase"]),
        Argument("module", column("module"), _printable(model.module_names)),
        Argument("prefetch", np.where(column("prefetch") == 1, 1, NONE)),
        Argument("dimension", column("communicator"), dimensions),
        Argument("Process Group Description", column("communicator"), _descriptions(model)),
    ]


def _descriptions(model: Model) -> list[str]:
    """What the program calls each communicator, else its name."""
    pairs = zip(model.descriptions, model.communicator_names, strict=False)
    return _printable([text or name for text, name in pairs])


def _code(names: list[str], name: str) -> int:
    return names.index(name) if name in names else len(names)


def _printable(names: list[str]) -> list[str]:
    return [printable(name) for name in names]


def _translate(names: list[str], translation: dict[str, str]) -> list[str]:
    return [translation.get(name, printable(name)) for name in names]


def _calls(model: Model, rank: Rank, rows: Ints) -> Layer:
    ops = model.tables["operations"]
    rows = rows[np.asarray(ops["call_ns"][rows] >= 0)]
    start, end = ops["call_ns"][rows].astype(np.int64), ops["call_end_ns"][rows].astype(np.int64)
    threads, track = np.unique(ops["thread"][rows], return_inverse=True)
    names = [f"thread {thread}" if thread != NONE else "thread" for thread in threads.tolist()]

    def details(places: Ints) -> Details:
        some = rows[places]
        name = np.asarray(ops["function"][some]).astype(np.int64)
        return Details(
            name, [Argument("operation", some, varies=True)], [CALL_FLOWS + some], parent=some
        )

    functions = [f"nccl{name}" for name in model.words["function"]]
    return Layer(
        rank, "call", [("calls", name) for name in names], [*functions, "?"], track, start,
        np.maximum(end, start), details,
    )  # fmt: skip
