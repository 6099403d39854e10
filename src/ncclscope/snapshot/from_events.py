"""A process's ranks from its events: what live pages tell, where there is no page."""

from dataclasses import dataclass

import numpy as np

from ncclscope.arrays import _abi
from ncclscope.arrays.joins import positions_of
from ncclscope.arrays.types import Ints
from ncclscope.capture import layout
from ncclscope.capture.columns import (
    START_NS,
    STOP_NS,
    STOPPED,
    Columns,
    Fields,
    ReadPlan,
    flag_column,
    key,
    number,
)
from ncclscope.capture.metadata import Communicator
from ncclscope.capture.process import Process
from ncclscope.capture.process_strings import ProcessStrings
from ncclscope.capture.settled_events import KINDS, SettledEvents, settled_events
from ncclscope.capture.settled_process import SettledProcess
from ncclscope.model.match.global_ranks import LocalRank, global_ranks
from ncclscope.model.process.events import ProcessEvents, events_of
from ncclscope.model.schema import NONE
from ncclscope.nccl.events import BIT, FIRST_WITH_CALLS, FIRST_WITH_STAMPS
from ncclscope.snapshot.types import (
    PAIRED,
    USUALLY,
    LastCall,
    NsBefore,
    OpenEvents,
    OperationInFlight,
    RankState,
    open_events_of,
)

_CALLS, _WORKS = ("CollApi", "P2pApi"), ("Coll", "P2p")
_OPEN = ("GroupApi", "KernelCh", "ProxyOp", "ProxyStep")
_TIMES = {"start_ns": START_NS, "stop_ns": STOP_NS}
_OF_COMM = {**_TIMES, "comm": number("comm")}
_STOPPED = {"stopped": flag_column(STOPPED)}
_FIELDS: dict[str, Fields] = {
    "Coll": {**_OF_COMM, "channels": number("channels")},
    "P2p": {**_OF_COMM, "channels": number("chan")},
    "KernelCh": {**_OF_COMM, **_STOPPED, "parent": key("parent")},
    "GroupApi": {**_TIMES, **_STOPPED},
    "CollApi": _OF_COMM,
    "P2pApi": _OF_COMM,
    "ProxyOp": {**_TIMES, **_STOPPED},
    "ProxyStep": {**_TIMES, **_STOPPED},
    "Group": _TIMES,
}
_PLANS = {kind: ReadPlan(fields) for kind, fields in _FIELDS.items()}
_MOST_IN_FLIGHT, _MOST_OPEN = 256, 4096


@dataclass(frozen=True, slots=True)
class _Events:
    """A process's events, and their columns by kind."""

    events: ProcessEvents
    columns: dict[str, Columns]


def rank_states_from_events(process: Process) -> tuple[tuple[RankState, ...], int]:
    """The process's ranks, one for each of its communicators, and the moment of the snapshot
    (CLOCK_MONOTONIC, ns).
    """
    return settled_rank_states(process) or rank_states_event_by_event(process)


def settled_rank_states(process: Process) -> tuple[tuple[RankState, ...], int] | None:
    """The same of a process in which nothing is open and nothing in flight; None of others."""
    communicators = process.communicators
    if not all(comm.id and comm.rank >= 0 for comm in communicators):
        return None  # the works alone tell them
    settled = settled_events(
        process.slots, process.clock, process.header.nonce, communicators, reporting_of
    )
    return None if settled is None else rank_states_of_settled(process, settled)


def rank_states_of_settled(
    process: Process | SettledProcess, settled: SettledEvents
) -> tuple[tuple[RankState, ...], int]:
    """The same from the sums of its events."""
    communicators = process.communicators
    at_ns = settled.newest_ns
    ns_before = _ns_before(process, at_ns)
    strings = ProcessStrings(process.strings)
    known = [(comm.id, comm.rank) for comm in communicators]
    ranks = _global_ranks(process, known)
    rank_states = []
    for place, comm in enumerate(communicators):
        counts = dict(zip(KINDS, settled.counts[place], strict=True))
        kinds = _CALLS if comm.version >= FIRST_WITH_CALLS else _WORKS
        slots = ((kind, settled.last_slot(place, kind)) for kind in kinds)
        last = _newest_call([(kind, slot) for kind, slot in slots if slot is not None])
        rank_states.append(
            _rank_state(
                comm,
                known[place],
                ranks[comm.number],
                counts,
                _as_last_call(last, strings, ns_before),
                settled.newest_stop_ns[place],
                settled.kernel_times_ns[place],
                (),
                None,
                at_ns,
                ns_before,
            )
        )
    return tuple(rank_states), at_ns


def reporting_of(comm: Communicator) -> int:
    """What the kernels of a communicator's works tell."""
    if not comm.mask & BIT["KernelCh"]:
        return _abi.REPORTS_NOTHING
    # Before, the number of channels is an upper bound.
    return _abi.REPORTS_FULLY if comm.version >= FIRST_WITH_STAMPS else _abi.REPORTS_PARTLY


def rank_states_event_by_event(process: Process) -> tuple[tuple[RankState, ...], int]:
    """The same of any process."""
    events = events_of(process, tuple(_FIELDS), _PLANS)
    columns = {kind: events[kind].read(**fields) for kind, fields in _FIELDS.items()}
    decoded = _Events(events, columns)
    at_ns = _moment(decoded)
    ns_before = _ns_before(process, at_ns)
    strings = ProcessStrings(process.strings)
    in_flight = _operations_in_flight(decoded, strings, at_ns)
    open_events = open_events_of(_open_events(decoded), ns_before)
    rows_of = [
        {kind: _rows_of(decoded, kind, comm.number) for kind in (*_CALLS, *_WORKS)}
        for comm in process.communicators
    ]
    known = [
        _id_and_rank(events, rows["Coll"], comm.id, comm.rank)
        for comm, rows in zip(process.communicators, rows_of, strict=True)
    ]
    ranks = _global_ranks(process, known)
    rank_states = []
    for comm, rows, id_and_rank in zip(process.communicators, rows_of, known, strict=True):
        kinds = _CALLS if comm.version >= FIRST_WITH_CALLS else _WORKS
        kernels = _rows_of(decoded, "KernelCh", comm.number)
        stops = columns["KernelCh"]["stop_ns"][kernels]
        times = (stops - columns["KernelCh"]["start_ns"][kernels])[stops != NONE]
        own = [operation for number, operation in in_flight if number == comm.number]
        last = _newest_call(
            [(kind, events[kind].slot(rows[kind][-1])) for kind in kinds if len(rows[kind])]
        )
        rank_states.append(
            _rank_state(
                comm,
                id_and_rank,
                ranks[comm.number],
                {kind: len(places) for kind, places in rows.items()},
                _as_last_call(last, strings, ns_before),
                int(stops.max(initial=NONE)),
                times,
                tuple(own),
                open_events.get(comm.number),
                at_ns,
                ns_before,
            )
        )
    return tuple(rank_states), at_ns


def _ns_before(process: Process | SettledProcess, at_ns: int) -> NsBefore:
    """How long before a moment ticks were."""
    ticks_now, rate = _ticks_at(process, at_ns), process.clock.ns_per_tick
    return lambda ticks: max(int((ticks_now - ticks) * rate), 0)


def _global_ranks(
    process: Process | SettledProcess, known: list[tuple[int, int]]
) -> dict[int, int]:
    """Ranks in the job by communicator number. `known`: by communicator its id, and the process's
    rank in it.
    """
    locals_ = (
        LocalRank(comm.number, _gpu(comm), rank, comm.ranks, comm_id)
        for comm, (comm_id, rank) in zip(process.communicators, known, strict=True)
    )
    return global_ranks(locals_, process.identity)


def _gpu(comm: Communicator) -> str:
    return comm.gpu_uuid or comm.gpu_bus_id


def _rank_state(
    comm: Communicator,
    id_and_rank: tuple[int, int],
    global_rank: int,
    counts: dict[str, int],
    last: LastCall | None,
    newest_stop_ns: int,
    times_ns: Ints,
    in_flight: tuple[OperationInFlight, ...],
    parts: OpenEvents | None,
    at_ns: int,
    ns_before: NsBefore,
) -> RankState:
    """One rank. `counts`: its events by kind; `times_ns`: of its kernels."""
    kinds = _CALLS if comm.version >= FIRST_WITH_CALLS else _WORKS
    works = sum(counts[kind] for kind in _WORKS)
    return RankState(
        number=comm.number,
        id=id_and_rank[0],
        name=comm.name,
        version=comm.version,
        rank=id_and_rank[1],
        ranks=comm.ranks,
        gpu=_gpu(comm),
        reports_kernels=bool(comm.mask & BIT["KernelCh"]),
        opened_ns=ns_before(comm.t_open),
        closed=comm.t_close is not None,
        calls=sum(counts[kind] for kind in kinds),
        works=works,
        collectives=counts[kinds[0]],
        last=last,
        done_ns=at_ns - newest_stop_ns if newest_stop_ns != NONE else None,
        in_flight=tuple(sorted(in_flight, key=lambda one: one.order)[:_MOST_IN_FLIGHT]),
        parts=parts,
        global_rank=global_rank,
        longest_ns=int(times_ns.max(initial=0)),
        usual_ns=_usual_ns(times_ns),
        finished=works - len(in_flight),
        gpu_bus_id=comm.gpu_bus_id,
        closed_ns=None if comm.t_close is None else ns_before(comm.t_close),
    )


def _usual_ns(times: Ints) -> int:
    """What np.quantile(times, USUALLY) returns; that takes a tenth of a millisecond for any array,
    and ten thousand processes have some each.
    """
    if not len(times):
        return 0
    place = USUALLY * (len(times) - 1)
    low = int(place)
    high = min(low + 1, len(times) - 1)
    ordered = np.partition(times, (low, high))
    below, above, share = float(ordered[low]), float(ordered[high]), place - low
    if share < 0.5:
        return int(below + (above - below) * share)
    return int(above - (above - below) * (1 - share))


def _moment(decoded: _Events) -> int:
    """When the process gave its last sign."""
    newest = int(decoded.events.process.clock.monotonic_ns[-1])
    for columns in decoded.columns.values():
        for name in _TIMES:
            newest = max(newest, int(columns[name].max(initial=newest)))
    return newest


def _ticks_at(process: Process | SettledProcess, at_ns: int) -> int:
    clock = process.clock
    behind = at_ns - int(clock.monotonic_ns[-1])
    return int(clock.ticks[-1]) + int(behind / clock.ns_per_tick)


def _rows_of(decoded: _Events, kind: str, comm: int) -> Ints:
    """Places of a kind's events of one communicator."""
    rows: Ints = (decoded.columns[kind]["comm"] == comm).nonzero()[0]
    return rows


def _id_and_rank(
    decoded: ProcessEvents, rows: Ints, init_id: int, init_rank: int
) -> tuple[int, int]:
    """A communicator's id and the process's rank in it: by init, or by its works, which alone tell
    them before interface v4. `rows`: of its Coll events.
    """
    if (init_id and init_rank >= 0) or not len(rows):
        return init_id, init_rank
    last = decoded["Coll"].at(rows[-1:])
    extension = last.read_extensions(comm_hash=number("comm_hash"), rank=number("rank"))
    rank = init_rank if init_rank >= 0 else int(extension["rank"][0])
    return init_id or int(extension["comm_hash"][0]) % (1 << 64), rank


_Call = tuple[str, np.void]  # kind and slot


def _newest_call(calls: list[_Call]) -> _Call | None:
    """The last of the last calls of each kind; of equal ones the first."""
    newest = None
    for kind, slot in calls:
        if newest is None or slot["t0"] > newest[1]["t0"]:
            newest = kind, slot
    return newest


def _as_last_call(
    call: _Call | None, strings: ProcessStrings, ns_before: NsBefore
) -> LastCall | None:
    if call is None:
        return None
    kind, slot = call
    v1 = bool(slot["flags"] & layout.FLAG_NUMBERS)
    return LastCall(
        function=strings.function(int(slot["func"]), v1),
        datatype=strings.datatype(int(slot["dtype"]), v1),
        count=int(slot["count"]),
        root=int(slot["peer" if kind == "P2p" else "root"]),
        since_ns=ns_before(int(slot["t0"])),
    )


def _operations_in_flight(
    decoded: _Events, strings: ProcessStrings, at_ns: int
) -> list[tuple[int, OperationInFlight]]:
    """Works whose kernels have not all ended, with the numbers of their communicators."""
    in_flight: list[tuple[int, OperationInFlight]] = []
    events, columns = decoded.events, decoded.columns
    communicators = events.process.communicators
    reporting = {comm.number for comm in communicators if comm.mask & BIT["KernelCh"]}
    kernel = columns["KernelCh"]
    comm, began, channels = (
        np.concatenate([columns[kind][name] for kind in _WORKS])
        for name in ("comm", "start_ns", "channels")
    )
    keys = np.concatenate([events[kind].keys for kind in _WORKS])
    sorted_by_key = np.argsort(keys, kind="stable")
    place = positions_of(keys[sorted_by_key], kernel["parent"])
    row = np.where(place != NONE, sorted_by_key[np.maximum(place, 0)], NONE) if len(keys) else place
    known = row != NONE
    started = np.bincount(row[known], minlength=len(keys))
    ended = np.bincount(row[known & kernel["stopped"]], minlength=len(keys))
    version = {c.number: c.version for c in communicators}
    for own_comm in sorted(reporting):
        own = np.flatnonzero(comm == own_comm)
        own = own[np.argsort(began[own], kind="stable")]
        if version[own_comm] < FIRST_WITH_STAMPS:  # the number of channels is an upper bound
            over = (ended[own] > 0) & (ended[own] >= started[own])
        else:
            over = ended[own] >= np.maximum(channels[own], 1)
        # NCCL runs a communicator's operations in order: what comes before an ended one is over.
        last_over = np.flatnonzero(over)
        first = int(last_over[-1]) + 1 if len(last_over) else 0
        for order in range(first, len(own)):
            at = int(own[order])
            operation = _operation_in_flight(
                events, at, order + 1, int(started[at]), int(ended[at]), strings, at_ns
            )
            if operation is not None:
                in_flight.append((own_comm, operation))
    return in_flight


def _operation_in_flight(
    decoded: ProcessEvents,
    at: int,
    order: int,
    started: int,
    ended: int,
    strings: ProcessStrings,
    at_ns: int,
) -> OperationInFlight | None:
    colls = len(decoded["Coll"])
    kind, place = ("Coll", at) if at < colls else ("P2p", at - colls)
    events = decoded[kind]
    slot = events.slot(place)
    v1 = bool(slot["flags"] & layout.FLAG_NUMBERS)
    function = strings.function(int(slot["func"]), v1)
    comm = next(c for c in decoded.process.communicators if c.number == slot["comm"])
    peer = int(slot["peer"]) if kind == "P2p" else None
    if peer is not None and peer == comm.rank:
        return None  # a copy to itself reports no kernel
    call = decoded["CollApi" if kind == "Coll" else "P2pApi"]
    own = events.at(slice(place, place + 1))
    api = int(call.find(own.one(key("parent")))[0])
    captured = api != NONE and bool(call.slot(api)["flags"] & layout.FLAG_GRAPH)
    caller = own if api == NONE or captured else call.at(slice(api, api + 1))
    begun = int(caller.one(START_NS)[0])
    return OperationInFlight(
        order=order,
        function=function if kind == "Coll" or function else PAIRED[0],
        datatype=strings.datatype(int(slot["dtype"]), v1),
        algorithm=strings.algorithm(int(slot["algo"]), v1) if kind == "Coll" else "",
        count=int(slot["count"]),
        peer=peer,
        channels=int(slot["channels"] if kind == "Coll" else slot["chan"]),
        started=started,
        stopped=ended,
        replay=captured,
        since_ns=max(at_ns - begun, 0),
    )


def _open_events(decoded: _Events) -> list[tuple[int, int, np.void]]:
    """Events that have not stopped: stream, index and slot, as live pages hold them."""
    out = []
    for kind in _OPEN:
        events = decoded.events[kind]
        running = (~decoded.columns[kind]["stopped"]).nonzero()[0]
        for at in running[-_MOST_OPEN:].tolist():
            handle = int(events.keys[at])
            stream, index = handle >> layout.INDEX_BITS, handle & layout.INDEX_MASK
            out.append((stream, index, events.slot(at)))
    return out
