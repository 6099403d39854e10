"""A process's last known moment: how far each communicator is, what is in flight, what is open.

Read from its live page and metadata, so that a thousand processes take a second; from its events
where there is no page, or where the process died while it was busy and its memory tells more.
"""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ncclscope.capture import layout
from ncclscope.capture.call_counts import bucket_bounds_ns, read_call_counts
from ncclscope.capture.header import Header, launcher_rank, number_in, restarts_before
from ncclscope.capture.live_page import LivePage, read_live_page
from ncclscope.capture.liveness import DEAD, life_of
from ncclscope.capture.metadata import Communicator
from ncclscope.capture.metadata_tail import MetadataTail
from ncclscope.capture.process import Process, open_process
from ncclscope.capture.process_strings import ProcessStrings
from ncclscope.errors import FormatError
from ncclscope.model.schema import NONE
from ncclscope.nccl.events import BIT, FIRST_WITH_CALLS
from ncclscope.snapshot import from_events
from ncclscope.snapshot.types import (
    PAIRED,
    USUALLY,
    Ago,
    LastCall,
    OperationInFlight,
    RankState,
    open_events_of,
)

LONGEST_NS = 1 << 55  # a year: more is damage
_BUSY_NS = 2_000_000_000  # before its last page: it may have gone on behind it
_PROGRESS = (
    "comm", "calls", "works", "done", "t_last_call", "t_last_done", "func", "dtype", "count",
    "root_or_peer",
)  # fmt: skip
_LOCAL_RANKS = (
    "LOCAL_RANK",
    "SLURM_LOCALID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
)
_WORLD_SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", "PMI_SIZE")


@dataclass(frozen=True, slots=True)
class ProcessSnapshot:
    """One process at its last known moment."""

    folder: str
    host: str
    pid: int
    gpu: str  # number on its host, else bus id
    global_rank: int  # of its widest communicator, else the launcher's; NONE where nobody tells
    world: int  # ranks of the job as launchers say, 0
    restarts: int  # of the job before this process, as launchers count them
    mode: str
    nccl_version: int  # 22809 is 2.28.9; 0 where it is not known
    at_ns: int  # wall clock of that moment
    life: str  # alive, ended, dead, stopped, unheard
    how: str  # by what that was seen
    dropped: int
    started_ns: int  # wall clock
    rank_states: tuple[RankState, ...]
    path: Path
    strings: dict[int, str]
    simulated: bool = False  # NCCL is not real


def read_snapshot(folder: Path, now_ns: int, known: MetadataTail | None = None) -> ProcessSnapshot:
    """A process's last moment; FormatError when its files cannot be read. `now_ns`: wall clock;
    `known`: its metadata, where somebody reads it again and again.
    """
    page = read_live_page(folder)
    known = known or MetadataTail(folder / "meta")
    header = known.header if known.read() else None
    if header is None or page is None:
        return _from_events(folder, now_ns)
    life, how = life_of(header, page.ended or known.ended, page.realtime_ns, now_ns, folder)
    rate = _rate(header, page)
    if life == DEAD and (folder / "arena").exists() and _was_busy(header, page, rate):
        return _from_events(folder, now_ns)
    ranks = _ranks_by_gpu(header.identity, ((_gpu(comm), comm) for comm in known.communicators))
    rank_states = _rank_states(
        page, known.communicators, ProcessStrings(known.strings), rate, ranks
    )
    return _pulse(
        folder, header, rank_states, page.realtime_ns, (life, how), page.dropped, known.strings
    )


def _rate(header: Header, page: LivePage) -> float:
    """ns of a tick: between the process's start and its page."""
    ticks, elapsed = page.ticks - header.start_ticks, page.monotonic_ns - header.start_monotonic_ns
    if ticks > 0 and elapsed > 10_000_000:
        return elapsed / ticks
    return 1e9 / header.clock_hz if header.clock_hz else 1.0


def _was_busy(header: Header, page: LivePage, rate: float) -> bool:
    """Whether something happened shortly before the page was written, at least its start."""
    newest = header.start_ticks
    for name in ("t_last_call", "t_last_done"):
        newest = max(newest, int(page.communicators[name].max(initial=0)))
    return (page.ticks - newest) * rate < _BUSY_NS


# ---- from a live page ----
def _rank_states(
    page: LivePage,
    communicators: tuple[Communicator, ...],
    texts: ProcessStrings,
    rate: float,
    ranks: dict[str, int],
) -> tuple[RankState, ...]:
    """The process's place in each of its communicators."""

    def ago(ticks: int) -> int:
        return max(int((page.ticks - ticks) * rate), 0)

    numbered = {comm.number for comm in communicators if comm.version == 1}
    own_ranks = {comm.number: comm.rank for comm in communicators}
    progress = {row["comm"]: row for row in _plain_rows(page.communicators)}
    in_flight: dict[int, list[OperationInFlight]] = {}
    for row in page.operations:
        if int(row["peer"]) < 0 or int(row["peer"]) != own_ranks.get(int(row["comm"]), NONE):
            number = int(row["comm"])
            operation = _operation_in_flight(row, texts, ago, number in numbered)
            in_flight.setdefault(number, []).append(operation)
    parts = open_events_of(page.open_events, ago)
    rank_states = []
    for comm in communicators:
        at = progress.get(comm.number)
        v1 = comm.version == 1
        rank_states.append(
            RankState(
                number=comm.number,
                id=comm.id,
                name=comm.name,
                version=comm.version,
                rank=comm.rank,
                ranks=comm.ranks,
                gpu=_gpu(comm),
                reports_kernels=bool(comm.mask & BIT["KernelCh"]),
                opened_ns=ago(comm.t_open),
                closed=comm.t_close is not None,
                calls=int(at["calls"]) if at is not None else 0,
                works=int(at["works"]) if at is not None else 0,
                collectives=None,
                last=_last(at, texts, ago, v1) if at is not None and at["calls"] else None,
                done_ns=ago(int(at["t_last_done"]))
                if at is not None and at["t_last_done"]
                else None,
                in_flight=tuple(in_flight.get(comm.number, ())),
                parts=parts.get(comm.number),
                global_rank=ranks[_gpu(comm)],
                finished=int(at["done"]) if at is not None else 0,
                gpu_bus_id=comm.gpu_bus_id,
            )
        )
    return tuple(rank_states)


def _plain_rows(rows: npt.NDArray[np.void]) -> list[dict[str, int]]:
    """Rows as Python's own numbers, which cost a tenth to look at."""
    columns = {name: rows[name].tolist() for name in _PROGRESS}
    return [
        dict(zip(_PROGRESS, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def _operation_in_flight(
    row: np.void, texts: ProcessStrings, ago: Ago, v1: bool
) -> OperationInFlight:
    begun = int(row["t_call"]) if row["t_call"] and not row["bits"] & 1 else int(row["t_work"])
    return OperationInFlight(
        order=int(row["order"]),
        function=texts.function(int(row["func"]), v1),
        datatype=texts.datatype(int(row["dtype"]), v1),
        algorithm=texts.plain(int(row["algo"])),
        count=int(row["count"]),
        peer=int(row["peer"]) if row["peer"] >= 0 else None,
        channels=int(row["channels"]),
        started=int(row["started"]),
        stopped=int(row["stopped"]),
        replay=bool(row["bits"] & 1),
        since_ns=ago(begun),
    )


def _last(row: dict[str, int], texts: ProcessStrings, ago: Ago, v1: bool) -> LastCall:
    function, datatype = int(row["func"]), int(row["dtype"])
    return LastCall(
        function=texts.function(function, v1),
        datatype=texts.datatype(datatype, v1),
        count=int(row["count"]),
        root=int(row["root_or_peer"]),
        since_ns=ago(int(row["t_last_call"])),
    )


# ---- from events ----
def _from_events(folder: Path, now_ns: int) -> ProcessSnapshot:
    """The same from everything that the process left, which takes longer."""
    process = open_process(folder)
    rank_states, at_ns = from_events.rank_states_from_events(process)
    ranks = _ranks_by_gpu(
        process.header.identity, ((rank_state.gpu, rank_state) for rank_state in rank_states)
    )
    rank_states = tuple(
        replace(_counted_on(rank_state, process), global_rank=ranks[rank_state.gpu])
        for rank_state in rank_states
    )
    wall_ns = at_ns + process.clock.realtime_offset_ns
    life = life_of(process.header, process.ended, wall_ns, now_ns, folder)
    strings = process.strings
    return _pulse(folder, process.header, rank_states, wall_ns, life, process.dropped(), strings)


def _counted_on(rank_state: RankState, process: Process) -> RankState:
    """The seat with calls that are not on record: rotated out, dropped, or made while only totals
    were. They are counted, and came before those that are.
    """
    counted, collectives, texts = Counter[int](), Counter[int](), ProcessStrings(process.strings)
    for tally in process.call_counts:
        if tally.key.communicator == rank_state.number:
            counted[tally.key.level] += tally.calls
            if texts.function(tally.key.function, rank_state.version == 1) not in PAIRED:
                collectives[tally.key.level] += tally.calls
    level = layout.LEVEL_CALL if rank_state.version >= FIRST_WITH_CALLS else layout.LEVEL_WORK
    calls, works = counted[level], counted[layout.LEVEL_WORK]
    more_calls, more_works = max(calls - rank_state.calls, 0), max(works - rank_state.works, 0)
    if not more_calls and not more_works:
        return rank_state
    return replace(
        rank_state,
        calls=rank_state.calls + more_calls,
        works=rank_state.works + more_works,
        finished=rank_state.finished + more_works,
        collectives=max(rank_state.collectives or 0, collectives[level]),
        in_flight=tuple(replace(one, order=one.order + more_works) for one in rank_state.in_flight),
    )


def _pulse(
    folder: Path,
    header: Header,
    rank_states: tuple[RankState, ...],
    at_ns: int,
    life: tuple[str, str],
    dropped: int,
    strings: dict[int, str],
) -> ProcessSnapshot:
    identity = header.identity
    local = number_in(identity, *(f"env.{name}" for name in _LOCAL_RANKS))
    gpu = next(
        (rank_state.gpu_bus_id or rank_state.gpu for rank_state in rank_states if rank_state.gpu),
        "",
    )
    return ProcessSnapshot(
        folder=folder.name,
        host=identity.get("host", "unknown"),
        pid=header.pid,
        gpu=str(local) if local is not None else gpu,
        global_rank=min((rank_state.global_rank for rank_state in rank_states), default=NONE)
        if rank_states
        else _global_rank(identity, []),
        world=_world(identity),
        restarts=restarts_before(identity),
        mode=identity.get("mode", ""),
        nccl_version=number_in(identity, "nccl_version") or 0,
        at_ns=at_ns,
        life=life[0],
        how=life[1],
        dropped=dropped,
        started_ns=header.start_realtime_ns,
        rank_states=rank_states,
        path=folder,
        strings=strings,
        simulated=identity.get("simulation", "") not in ("", "0"),
    )


def _world(identity: dict[str, str]) -> int:
    return number_in(identity, *(f"env.{name}" for name in _WORLD_SIZES)) or 0


def _gpu(comm: Communicator) -> str:
    return comm.gpu_uuid or comm.gpu_bus_id


def _ranks_by_gpu(
    identity: dict[str, str], members: Iterable[tuple[str, Communicator | RankState]]
) -> dict[str, int]:
    """The global rank on each of a process's GPUs."""
    by_gpu: dict[str, list[Communicator | RankState]] = {}
    for gpu, member in members:
        by_gpu.setdefault(gpu, []).append(member)
    return {gpu: _global_rank(identity, mine) for gpu, mine in by_gpu.items()}


def _global_rank(identity: dict[str, str], members: list[Communicator | RankState]) -> int:
    """As the model has it: the rank in the widest communicator, or the launcher's where that one
    does not span the job.
    """
    given, ranked = launcher_rank(identity), [one for one in members if one.rank >= 0]
    if not ranked:
        return NONE if given is None else given
    widest = max(ranked, key=lambda one: (one.ranks, -one.number))
    # Of several GPUs in one process the launcher's rank is that of one.
    return given if given is not None and _world(identity) > widest.ranks else widest.rank


def read_snapshots(folders: list[Path]) -> tuple[list[ProcessSnapshot], list[str]]:
    """All processes' last moments, and why some could not be read."""
    now_ns, found, unreadable = time.time_ns(), [], []
    for folder in folders:
        try:
            found.append(read_snapshot(folder, now_ns))
        except FormatError as error:
            unreadable.append(str(error))
    return found, unreadable


# ---- what pages do not tell, looked up only where it matters ----
def collective_calls(snapshot: ProcessSnapshot, rank_state: RankState) -> int | None:
    """How many collectives a rank has called on a communicator; None where nobody counted them."""
    if rank_state.collectives is not None:
        return rank_state.collectives
    if rank_state.version > 1 and not any(name in PAIRED for name in snapshot.strings.values()):
        return rank_state.calls  # the process has never heard of sends
    records = read_call_counts(snapshot.path / "tally")["tally"]
    level = layout.LEVEL_CALL if rank_state.version >= FIRST_WITH_CALLS else layout.LEVEL_WORK
    mine = records[(records["comm"] == rank_state.number) & (records["level"] == level)]
    if not len(mine):
        return None if rank_state.calls else 0
    texts = ProcessStrings(snapshot.strings)
    paired = [texts.function(int(row["func"]), rank_state.version == 1) in PAIRED for row in mine]
    return int(mine["calls"][~np.array(paired, bool)].sum())


def longest_operation_ns(
    snapshot: ProcessSnapshot, rank_state: RankState, usually: bool = False
) -> int:
    """The longest time that an operation of a communicator has taken so far on one rank; `usually`:
    longer than 19 of 20 have taken.
    """
    if rank_state.longest_ns is not None:
        return rank_state.usual_ns if usually else rank_state.longest_ns
    records = read_call_counts(snapshot.path / "tally")
    mine = records[records["tally"]["comm"] == rank_state.number]["times"]
    if usually:
        running = np.cumsum(mine["host_histogram"].sum(axis=0, dtype=np.int64))
        bucket = int(np.searchsorted(running, USUALLY * running[-1])) if running[-1] else 0
        return int(bucket_bounds_ns()[bucket + 1]) if running[-1] else 0
    longest = max(int(mine[name].max(initial=0)) for name in ("gpu_max_ns", "host_max_ns"))
    return longest if longest < LONGEST_NS else 0
