"""A process's ranks from its live page: how far each communicator is, and what is in flight."""

import numpy as np
import numpy.typing as npt

from ncclscope.capture.header import Header
from ncclscope.capture.live_page import LivePage
from ncclscope.capture.metadata import Communicator
from ncclscope.capture.process_strings import ProcessStrings
from ncclscope.model.schema import NONE
from ncclscope.nccl.events import BIT
from ncclscope.snapshot.types import (
    LastCall,
    NsBefore,
    OperationInFlight,
    RankState,
    open_events_of,
)

_BUSY_NS = 2_000_000_000
_SHORTEST_SPAN_NS = 10_000_000  # from which a clock's rate is taken
_PROGRESS = (
    "comm", "calls", "works", "done", "t_last_call", "t_last_done", "func", "dtype", "count",
    "root_or_peer",
)  # fmt: skip
_REPLAY_BIT = 1


def ns_per_tick(header: Header, page: LivePage) -> float:
    """The rate of a process's counter, from its start to its page."""
    ticks, elapsed = page.ticks - header.start_ticks, page.monotonic_ns - header.start_monotonic_ns
    if ticks > 0 and elapsed > _SHORTEST_SPAN_NS:
        return elapsed / ticks
    return 1e9 / header.clock_hz if header.clock_hz else 1.0


def was_busy(header: Header, page: LivePage, rate: float) -> bool:
    """Whether something happened in the last two seconds before the page was written, at least
    the process's start: then it may have gone on after its last page. `rate`: ns per tick.
    """
    newest = header.start_ticks
    for name in ("t_last_call", "t_last_done"):
        newest = max(newest, int(page.communicators[name].max(initial=0)))
    return (page.ticks - newest) * rate < _BUSY_NS


def rank_states_from_live_page(
    page: LivePage,
    communicators: tuple[Communicator, ...],
    strings: ProcessStrings,
    rate: float,
    global_ranks: dict[int, int],
) -> tuple[RankState, ...]:
    """The process's ranks, one for each of its communicators. `global_ranks`: by number."""

    def ns_before(ticks: int) -> int:
        return max(int((page.ticks - ticks) * rate), 0)

    progress = {row["comm"]: row for row in _plain_rows(page.communicators)}
    in_flight = _operations_in_flight(page, communicators, strings, ns_before)
    open_events = open_events_of(page.open_events, ns_before)
    rank_states = []
    for comm in communicators:
        row = progress.get(comm.number)
        v1 = comm.version == 1
        rank_states.append(
            RankState(
                number=comm.number,
                id=comm.id,
                name=comm.name,
                version=comm.version,
                rank=comm.rank,
                ranks=comm.ranks,
                gpu=comm.gpu_uuid or comm.gpu_bus_id,
                reports_kernels=bool(comm.mask & BIT["KernelCh"]),
                opened_ns=ns_before(comm.t_open),
                closed=comm.t_close is not None,
                calls=row["calls"] if row else 0,
                works=row["works"] if row else 0,
                collectives=None,
                last=_last_call(row, strings, ns_before, v1) if row and row["calls"] else None,
                done_ns=ns_before(row["t_last_done"]) if row and row["t_last_done"] else None,
                in_flight=tuple(in_flight.get(comm.number, ())),
                parts=open_events.get(comm.number),
                global_rank=global_ranks[comm.number],
                finished=row["done"] if row else 0,
                gpu_bus_id=comm.gpu_bus_id,
                closed_ns=None if comm.t_close is None else ns_before(comm.t_close),
            )
        )
    return tuple(rank_states)


def _plain_rows(rows: npt.NDArray[np.void]) -> list[dict[str, int]]:
    """Rows as Python's own numbers, which are ten times quicker to look at."""
    columns = {name: rows[name].tolist() for name in _PROGRESS}
    return [
        dict(zip(_PROGRESS, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def _operations_in_flight(
    page: LivePage,
    communicators: tuple[Communicator, ...],
    strings: ProcessStrings,
    ns_before: NsBefore,
) -> dict[int, list[OperationInFlight]]:
    """Operations in flight by communicator number, without copies of a rank to itself."""
    own_ranks = {comm.number: comm.rank for comm in communicators}
    v1 = {comm.number for comm in communicators if comm.version == 1}
    out: dict[int, list[OperationInFlight]] = {}
    for row in page.operations:
        number, peer = int(row["comm"]), int(row["peer"])
        if peer < 0 or peer != own_ranks.get(number, NONE):
            operation = _operation_in_flight(row, strings, ns_before, number in v1)
            out.setdefault(number, []).append(operation)
    return out


def _operation_in_flight(
    row: np.void, strings: ProcessStrings, ns_before: NsBefore, v1: bool
) -> OperationInFlight:
    is_replay = bool(row["bits"] & _REPLAY_BIT)
    began = int(row["t_call"]) if row["t_call"] and not is_replay else int(row["t_work"])
    return OperationInFlight(
        order=int(row["order"]),
        function=strings.function(int(row["func"]), v1),
        datatype=strings.datatype(int(row["dtype"]), v1),
        algorithm=strings.algorithm(int(row["algo"]), v1),
        count=int(row["count"]),
        peer=int(row["peer"]) if row["peer"] >= 0 else None,
        channels=int(row["channels"]),
        started=int(row["started"]),
        stopped=int(row["stopped"]),
        replay=is_replay,
        since_ns=ns_before(began),
    )


def _last_call(
    row: dict[str, int], strings: ProcessStrings, ns_before: NsBefore, v1: bool
) -> LastCall:
    return LastCall(
        function=strings.function(row["func"], v1),
        datatype=strings.datatype(row["dtype"], v1),
        count=row["count"],
        root=row["root_or_peer"],
        since_ns=ns_before(row["t_last_call"]),
    )
