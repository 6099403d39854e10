"""The layers of a rank's timeline, from the model: operations, and what they consist of."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.analysis.measures import began_ns
from ncclscope.analysis.selection import Selection
from ncclscope.export.trace_model import OPEN, Argument, Details, Layer, Rank
from ncclscope.humanize import printable
from ncclscope.model.detail_tables import details_of_process
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE, Columns
from ncclscope.nccl.bandwidth import bus_factor
from ncclscope.nccl.datatypes import DATATYPES
from ncclscope.nccl.functions import FUNCTIONS
from ncclscope.nccl.torch_names import COLLECTIVE_NAMES

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
# Flows by what they join; numbers of instances are the flows below.
CHILD_FLOWS, CALL_FLOWS = 1 << 60, 1 << 61
# Where stamps are exact enough to divide by.
_TORCH_DATATYPES = {name: datatype.torch for name, datatype in DATATYPES.items()}
_WIDE_INPUT = tuple(name for name, function in FUNCTIONS.items() if function.wide_input)
_WIDE_OUTPUT = tuple(name for name, function in FUNCTIONS.items() if function.wide_output)
_FOR_BANDWIDTH = ("gpu", "gpu-repaired", "gpu-partial")
_UNFINISHED = ("in flight", "never launched")


@dataclass(frozen=True, slots=True)
class Chosen:
    """Rows of `operations` of one rank that are drawn: whole ones, and parts of others."""

    whole: Ints
    parts: Ints
    timeless: int  # operations of which no time is known: they cannot be drawn


@dataclass(frozen=True, slots=True)
class _Children:
    """What hangs below operations: a layer's columns, and each one's operation and flow."""

    columns: Columns
    operation: Ints
    flow: Ints


def chosen_rows(model: Model, chosen: Selection, rank: Rank) -> Chosen:
    """The rank's operations that are chosen."""
    ops = model.tables["operations"]
    first, last = np.searchsorted(ops["process"], (rank.process, rank.process + 1)).tolist()
    rows = slice(first, last)
    keep = chosen.rows(model, rows)
    keep &= np.asarray(ops["global_rank"][rows] == rank.global_rank)
    known = began_ns(ops, rows) >= 0
    part = np.asarray(ops["part_of"][rows] != NONE)
    return Chosen(
        first + np.flatnonzero(keep & known & ~part),
        first + np.flatnonzero(keep & known & part),
        int((keep & ~known).sum()),
    )


def layers_of(
    model: Model, rank: Rank, rows: Chosen, chosen: Selection, operations_only: bool
) -> Iterator[Layer]:
    """All layers of a rank."""
    if operations_only:
        yield _operations(model, rank, rows.whole, "", [])
        return
    parts, channels, proxies = _children(model, rank, rows, chosen)
    yield _operations(model, rank, rows.whole, "", [parts, channels, proxies])
    yield _operations(model, rank, rows.parts, "parts", [channels, proxies], parts.flow)
    yield _calls(model, rank, rows.whole)
    yield _channels(model, rank, channels)
    yield _proxy_ops(model, rank, proxies)
    yield _proxy_steps(model, rank, proxies)


# ---- operations ----
def _operations(
    model: Model,
    rank: Rank,
    rows: Ints,
    group: str,
    below: list[_Children],
    flow: Ints | None = None,
) -> Layer:
    ops, words = model.tables["operations"], model.words
    start, end = span(model, rows)
    tracks = _communicator_tracks(model, group)
    parents, first_flow, flows = _flows_below(below)

    def details(places: Ints) -> Details:
        some = rows[places]
        at = np.searchsorted(parents, some)
        found = np.minimum(at, max(len(parents) - 1, 0))
        has = (parents[found] == some) if len(parents) else np.zeros(len(some), np.bool_)
        through = [np.where(ops["instance"][some] != NONE, ops["instance"][some] + 1, NONE)]
        if flow is not None:
            through.append(flow[places])
        else:
            through.append(np.where(ops["call_ns"][some] != NONE, CALL_FLOWS + some, NONE))
        return Details(
            np.asarray(ops["function"][some]).astype(np.int64),
            _operation_arguments(model, some),
            through if below or flow is not None else through[:1],
            some,
            None if flow is None else np.asarray(ops["part_of"][some]).astype(np.int64),
            first_flow[found] if len(parents) else None,
            np.where(has, flows[found], 0) if len(parents) else None,
        )

    size = np.maximum(np.asarray(ops["size_bytes"][rows]).astype(np.int64), 0)
    return Layer(
        rank, "nccl", tracks, [*words["function"], "?"],
        np.asarray(ops["communicator"][rows]).astype(np.int64) % len(tracks), start, end, details,
        None if group else size, None if group else _bandwidth_kbs(model, rows, size, end - start),
    )  # fmt: skip


def span(model: Model, rows: Ints) -> tuple[Ints, Ints]:
    """From when to when each operation is drawn: a moment where only its beginning is known."""
    ops = model.tables["operations"]
    start = began_ns({name: values[rows] for name, values in _times(ops).items()}, slice(None))
    end = np.asarray(ops["end_ns"][rows]).astype(np.int64)
    unfinished = np.isin(
        ops["state"][rows], [model.words["state"].index(name) for name in _UNFINISHED]
    )
    timed = np.asarray((ops["start_ns"][rows] >= 0) & (end >= start))
    return start, np.where(unfinished, OPEN, np.where(timed, end, start))


def _times(ops: Columns) -> Columns:
    return {name: ops[name] for name in ("start_ns", "launch_ns", "call_ns", "enqueue_ns")}


def _bandwidth_kbs(model: Model, rows: Ints, size: Ints, duration: Ints) -> Ints:
    """Bus bandwidth of each operation; 0 where its time is not good enough."""
    ops, words = model.tables["operations"], model.words
    ranks = model.tables["communicators"]["ranks"].tolist()
    functions = [*words["function"], ""]
    factors = np.array(
        [[bus_factor(name, count) or 0.0 for name in functions] for count in [*ranks, 0]]
    )
    sound = np.isin(ops["source"][rows], [words["source"].index(name) for name in _FOR_BANDWIDTH])
    good = sound & (duration > 0) & (duration < OPEN // 2)
    factor = factors[ops["communicator"][rows], ops["function"][rows]]
    bandwidth = size * factor / np.where(good, duration, 1) * 1e6
    return np.where(good, np.rint(bandwidth), 0).astype(np.int64)


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

    def wide(names: tuple[str, ...]) -> Bools:
        """Functions whose elements are those of all ranks, where they are known."""
        codes = [code for code, name in enumerate(words["function"]) if name in names]
        return np.isin(function, codes) & (count >= 0)

    reason = np.where(column("reason") > 0, column("reason"), NONE)
    return [
        Argument("Collective name", function, _renamed(words["function"], COLLECTIVE_NAMES)),
        Argument("Process Group Name", communicator, _printed(model.communicator_names)),
        Argument("Seq", column("call_order"), varies=True),
        Argument("Group size", ranks),
        Argument("Rank", column("rank")),
        Argument("In msg nelems", np.where(wide(_WIDE_INPUT), count * ranks, count)),
        Argument("Out msg nelems", np.where(wide(_WIDE_OUTPUT), count * ranks, count)),
        Argument("dtype", column("datatype"), _renamed(words["datatype"], _TORCH_DATATYPES)),
        Argument("Src Rank", np.where(receives, peer, NONE)),
        Argument("Dst Rank", np.where(sends, peer, NONE)),
        Argument("root", column("root")),
        Argument("size_bytes", column("size_bytes")),
        Argument("algorithm", column("algorithm"), _printed(words["algorithm"])),
        Argument("protocol", column("protocol"), _printed(words["protocol"])),
        Argument("channels", column("channels")),
        Argument("wait_ns", column("wait_ns"), varies=True),
        Argument("wire_ns", column("wire_ns"), varies=True),
        Argument("source", source, words["source"]),
        Argument("reason", reason, words["reason"]),
        Argument("state", np.where(state == 0, NONE, state), words["state"]),
        Argument("replay", np.where(column("replay") == 1, 1, NONE)),
        Argument("inferred", np.where(column("inferred") == 1, 1, NONE)),
        Argument("part_of", column("part_of")),
        Argument("sequence", column("sequence"), varies=True),
        Argument("part_of", column("part_of"), varies=True),
        Argument("operation", rows, varies=True),
    ]


def _code(names: list[str], name: str) -> int:
    return names.index(name) if name in names else len(names)


def _printed(names: list[str]) -> list[str]:
    return [printable(name) for name in names]


def _renamed(names: list[str], renamed: dict[str, str]) -> list[str]:
    return [renamed.get(name, printable(name)) for name in names]


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


# ---- what operations consist of ----
def _children(
    model: Model, rank: Rank, rows: Chosen, chosen: Selection
) -> tuple[_Children, _Children, _Children]:
    """Parts, channels and proxy ops of the chosen operations, with a flow each."""
    ops = model.tables["operations"]
    parts: Columns = {"row": rows.parts}
    drawn = np.sort(np.concatenate([rows.whole, rows.parts]))
    channels = _kept(_details(model, "channels", rank), drawn, None)
    loose = _without_operation(model, rank, chosen)
    proxies = _kept(_details(model, "proxy_ops", rank), drawn, loose)
    of = [
        np.asarray(ops["part_of"][rows.parts]).astype(np.int64),
        channels["operation"].astype(np.int64),
        proxies["operation"].astype(np.int64),
    ]
    order = np.argsort(np.concatenate(of), kind="stable")
    flow = np.empty(len(order), np.int64)
    flow[order] = CHILD_FLOWS + (rank.number << 32) + np.arange(len(order))
    flow[np.concatenate(of) == NONE] = NONE
    cuts = np.cumsum([len(one) for one in of])[:-1]
    made = [
        _Children(columns, operation, numbers)
        for columns, operation, numbers in zip(
            (parts, channels, proxies), of, np.split(flow, cuts), strict=True
        )
    ]
    return made[0], made[1], made[2]


def _details(model: Model, table: str, rank: Rank) -> Columns:
    columns = details_of_process(model, table, rank.process)
    return columns if columns is not None else {}


def _without_operation(model: Model, rank: Rank, chosen: Selection) -> Selection | None:
    """What to draw of work for other processes: it has no operation to be chosen by, and is drawn
    with the first rank of its process.
    """
    by_name = chosen.communicators is not None or chosen.functions is not None
    first = model.processes[rank.process].global_rank in (NONE, rank.global_rank)
    return chosen if first and not by_name else None


def _kept(columns: Columns, drawn: Ints, loose: Selection | None) -> Columns:
    """Rows of drawn operations, and those without an operation that `loose` allows."""
    if not columns:
        empty = np.empty(0, np.int64)
        return dict.fromkeys(("operation", "start_ns", "event"), empty)
    operation = columns["operation"].astype(np.int64)
    keep = np.isin(operation, drawn)
    if loose is not None:
        since, until = loose.since_ns or 0, loose.until_ns or OPEN
        start = columns["start_ns"]
        keep |= (operation == NONE) & (start >= since) & (start < until)
    return {name: values[keep] for name, values in columns.items()}


def _flows_below(below: list[_Children]) -> tuple[Ints, Ints, Ints]:
    """Operations with children: rows, first flow, number of flows."""
    parents = np.concatenate([np.empty(0, np.int64), *(one.operation for one in below)])
    flow = np.concatenate([np.empty(0, np.int64), *(one.flow for one in below)])
    known = parents != NONE
    order = np.argsort(flow[known], kind="stable")
    rows, first, count = np.unique(parents[known][order], return_index=True, return_counts=True)
    return rows, flow[known][order][first], count


def _channels(model: Model, rank: Rank, channels: _Children) -> Layer:
    ops, columns = model.tables["operations"], channels.columns
    if not len(channels.operation):
        return _nothing(rank, "channel")
    stamped = (columns["start_ns"] >= 0) & (columns["end_ns"] >= columns["start_ns"])
    start = np.where(stamped, columns["start_ns"], columns["seen_start_ns"]).astype(np.int64)
    end = np.where(stamped, columns["end_ns"], columns["seen_end_ns"]).astype(np.int64)
    end = np.where(end == NONE, OPEN, np.maximum(end, start))
    drawn = np.flatnonzero(start >= 0)
    communicator = ops["communicator"][channels.operation].astype(np.int64)
    names, track = _named(
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


def _proxy_ops(model: Model, rank: Rank, proxies: _Children) -> Layer:
    columns = proxies.columns
    if not len(proxies.operation):
        return _nothing(rank, "proxy")
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
            + [Argument("operation", proxies.operation[some], varies=True)],
            [proxies.flow[some]],
            parent=proxies.operation[some],
        )

    end = np.where(end == NONE, OPEN, np.maximum(end, start))
    return Layer(
        rank, "proxy", names, [*model.words["form"], "?"], track, start[drawn], end[drawn], details
    )


def _proxy_steps(model: Model, rank: Rank, proxies: _Children) -> Layer:
    """Steps of the drawn proxy ops; only captures of mode full have any."""
    process = model.processes[rank.process]
    known = "full" in (process.mode, process.fullest_mode) and len(proxies.operation)
    columns = _details(model, "proxy_steps", rank) if known else {}
    if not columns:
        return _nothing(rank, "step")
    order = np.argsort(proxies.columns["event"], kind="stable")
    events = proxies.columns["event"][order]
    at = np.minimum(np.searchsorted(events, columns["proxy_op"]), len(events) - 1)
    keep = (events[at] == columns["proxy_op"]) & (columns["start_ns"] >= 0)
    steps = {name: values[keep].astype(np.int64) for name, values in columns.items()}
    steps["communicator"] = proxies.columns["communicator"][order][at[keep]].astype(np.int64)
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


def _nothing(rank: Rank, category: str) -> Layer:
    none = np.empty(0, np.int64)
    return Layer(rank, category, [], [], none, none, none, lambda places: Details(places, []))


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

    return _named(model, "proxy", columns["communicator"][rows].astype(np.int64), key, name)


def _named(
    model: Model, group: str, communicator: Ints, key: Ints, name: Callable[[int], str]
) -> tuple[list[tuple[str, str]], Ints]:
    """Tracks by communicator and key, in that order, and the place of each row's."""
    keys, of_key = np.unique(key, return_inverse=True)
    both, track = np.unique(communicator * len(keys) + of_key, return_inverse=True)
    names = []
    for one in both.tolist():
        row, place = divmod(one, len(keys))
        owner = printable(model.communicator_names[row]) if row >= 0 else "others"
        names.append((f"{owner}: {group}", name(int(keys[place]))))
    return names, track
