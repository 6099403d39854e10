"""A snapshot of each process: how far each communicator is, what is in flight, what is open.

Read from live page and metadata, so that a thousand processes take a second; from events where
there is no page, or where the process died while it was busy and its memory tells more.
"""

import gc
import itertools
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ncclscope import launchers
from ncclscope.capture import layout
from ncclscope.capture.call_counts import bucket_bounds_ns, read_call_counts
from ncclscope.capture.header import Header, number_in
from ncclscope.capture.housekeeping import process_folders
from ncclscope.capture.live_page import read_live_page
from ncclscope.capture.liveness import DEAD, life_of
from ncclscope.capture.metadata_tail import MetadataTail
from ncclscope.capture.process import Process, open_process
from ncclscope.capture.process_strings import ProcessStrings
from ncclscope.capture.settled_process import SettledProcess, read_settled
from ncclscope.errors import FormatError
from ncclscope.model.match.global_ranks import LocalRank, global_ranks, lowest_known
from ncclscope.model.model import Model
from ncclscope.nccl.events import FIRST_WITH_CALLS
from ncclscope.snapshot.from_events import (
    rank_states_from_events,
    rank_states_of_settled,
    reporting_of,
)
from ncclscope.snapshot.from_live_page import ns_per_tick, rank_states_from_live_page, was_busy
from ncclscope.snapshot.training_context import (
    StepProgress,
    context_from_events,
    context_from_live_page,
    step_progress,
)
from ncclscope.snapshot.types import PAIRED, USUALLY, Compact, RankState
from ncclscope.threads import in_threads

LONGEST_NS = 1 << 55  # a year: more is damage
_FOLDERS_OF_A_WORKER = 128  # fewer are not worth a worker process
_FOLDERS_AT_ONCE = 64
_WORKERS_THAT_WAIT = 2  # for files, more than there are CPUs
_FOLDERS_TRIED = 4  # to see whether files are at hand
_AT_HAND = 2.0  # times the CPU time of a reading
_THREADS = 8


@dataclass(frozen=True, slots=True)
class ProcessSnapshot(Compact):
    """One process at its last known moment."""

    folder: str
    host: str
    pid: int
    gpu: str  # number on its host, else bus id
    global_rank: int  # of several, the lowest; NONE where nobody tells
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
    training: str = ""  # where in its training it is: step 812, backward, layers.17
    steps: StepProgress | None = None  # None: its ranges say no steps


class Snapshots(NamedTuple):
    """Snapshots of a capture's processes, and why some could not be read."""

    processes: list[ProcessSnapshot]
    unreadable: list[str]


def read_snapshots(folders: list[Path]) -> Snapshots:
    """Snapshots of all these processes."""
    workers = min(
        len(os.sched_getaffinity(0)) + _WORKERS_THAT_WAIT, len(folders) // _FOLDERS_OF_A_WORKER
    )
    now_ns, snapshots = time.time_ns(), Snapshots([], [])
    for answer in _read_in_workers(folders, now_ns, workers):
        if isinstance(answer, ProcessSnapshot):
            snapshots.processes.append(answer)
        else:
            snapshots.unreadable.append(answer)
    return snapshots


def _read_in_workers(
    folders: list[Path], now_ns: int, workers: int
) -> Iterator[ProcessSnapshot | str]:
    """Snapshots in the order of the folders, or why they cannot be read. Several processes read
    them where there are many: most of the time goes into Python.
    """
    if workers < 2:
        yield from _read_in_threads(folders, now_ns)
        return
    from concurrent.futures import ProcessPoolExecutor  # with multiprocessing: for many alone
    from multiprocessing import get_context

    parts = [folders[at : at + _FOLDERS_AT_ONCE] for at in range(0, len(folders), _FOLDERS_AT_ONCE)]
    # fork: a script that opens a capture need not be importable, as spawn requires. What a worker
    # makes refers to nothing that refers back, and looking for that takes a twentieth of its time.
    with ProcessPoolExecutor(workers, get_context("fork"), initializer=gc.disable) as pool:
        for answers in pool.map(_read_in_threads, parts, itertools.repeat(now_ns)):
            yield from answers


def _read_in_threads(folders: list[Path], now_ns: int) -> list[ProcessSnapshot | str]:
    """The same in this process: in threads on a network file system, where each file takes its
    time. Where files are at hand, threads would wait for each other, and take a sixth longer.
    """
    answers: list[ProcessSnapshot | str] = []
    tried = 0
    for folder in folders[:_FOLDERS_TRIED]:
        began, worked = _wall_and_cpu_s()
        answers += _read_settled_first([folder], now_ns)
        tried += 1
        now, has_worked = _wall_and_cpu_s()
        # Those before may have waited for a CPU.
        if now - began < _AT_HAND * (has_worked - worked):
            return answers + _read_settled_first(folders[tried:], now_ns)
    rest = folders[tried:]
    each = in_threads(lambda folder: _read_settled_first([folder], now_ns), rest, _THREADS)
    return answers + [answer for of_folder in each for answer in of_folder]


def _wall_and_cpu_s() -> tuple[float, float]:
    """Clocks: of the world, and of this thread's work."""
    return time.perf_counter(), time.thread_time()


def _read_settled_first(folders: list[Path], now_ns: int) -> list[ProcessSnapshot | str]:
    """The same: processes with nothing open together, and then the others."""
    answers: list[ProcessSnapshot | str] = []
    for folder, settled in zip(folders, read_settled(folders, reporting_of), strict=True):
        try:
            if settled is None:
                answers.append(read_snapshot(folder, now_ns))
            else:
                process, events = settled
                states = rank_states_of_settled(process, events)
                answers.append(_of_process(folder, process, states, now_ns, ""))
        except FormatError as error:
            answers.append(str(error))
    return answers


def unfinished_snapshots(model: Model) -> Snapshots | None:
    """Snapshots of a capture's processes; None where nothing can hang: every process ended with
    nothing in flight, or it is a dataset.
    """
    if all(row.ended for row in model.processes) and not model.completeness.in_flight:
        return None
    folders = process_folders(model.path)
    return read_snapshots(folders) if folders else None


def read_snapshot(folder: Path, now_ns: int, meta: MetadataTail | None = None) -> ProcessSnapshot:
    """A process's snapshot; FormatError when its files cannot be read. `now_ns`: wall clock;
    `meta`: its metadata, for callers that read it again and again.
    """
    page = read_live_page(folder)
    if page is None and meta is None:
        return _from_events(folder, now_ns)
    meta = meta or MetadataTail(folder / "meta")
    header = meta.header if meta.read() else None
    if header is None or page is None:
        return _from_events(folder, now_ns)
    life, how = life_of(header, page.ended or meta.ended, page.realtime_ns, now_ns, folder)
    rate = ns_per_tick(header, page)
    if life == DEAD and (folder / "arena").exists() and was_busy(header, page, rate):
        return _from_events(folder, now_ns)
    ranks = global_ranks(
        (
            LocalRank(comm.number, comm.gpu_uuid or comm.gpu_bus_id, comm.rank, comm.ranks, comm.id)
            for comm in meta.communicators
        ),
        header.identity,
    )
    rank_states = rank_states_from_live_page(
        page, meta.communicators, ProcessStrings(meta.strings), rate, ranks
    )
    training = context_from_live_page(page, meta.range_texts)
    return _snapshot(
        folder, header, rank_states, page.realtime_ns, (life, how), page.dropped, meta.strings,
        training, step_progress(page),
    )  # fmt: skip


def _from_events(folder: Path, now_ns: int) -> ProcessSnapshot:
    """The same from everything that the process left, which takes longer."""
    process = open_process(folder)
    states = rank_states_from_events(process)
    training = context_from_events(process)
    return _of_process(folder, process, states, now_ns, training)


def _of_process(
    folder: Path,
    process: Process | SettledProcess,
    states: tuple[tuple[RankState, ...], int],
    now_ns: int,
    training: str,
) -> ProcessSnapshot:
    """The snapshot of a process whose ranks are known, and the moment of which they are."""
    rank_states, at_ns = states
    if process.call_counts:
        rank_states = tuple(with_unrecorded_calls(state, process) for state in rank_states)
    wall_ns = at_ns + process.clock.realtime_offset_ns
    life = life_of(process.header, process.ended, wall_ns, now_ns, folder)
    return _snapshot(
        folder, process.header, rank_states, wall_ns, life, process.dropped(), process.strings,
        training,
    )  # fmt: skip


def with_unrecorded_calls(rank_state: RankState, process: Process | SettledProcess) -> RankState:
    """The rank with calls that are in the process's counters only: rotated out, dropped, or made
    while it paused. They came before those on record.
    """
    counted, collectives = Counter[int](), Counter[int]()
    strings = ProcessStrings(process.strings)
    for entry in process.call_counts:
        if entry.key.communicator == rank_state.number:
            counted[entry.key.level] += entry.calls
            if strings.function(entry.key.function, rank_state.version == 1) not in PAIRED:
                collectives[entry.key.level] += entry.calls
    level = _call_level(rank_state)
    more_calls = max(counted[level] - rank_state.calls, 0)
    more_works = max(counted[layout.LEVEL_WORK] - rank_state.works, 0)
    if not more_calls and not more_works:
        return rank_state
    return replace(
        rank_state,
        calls=rank_state.calls + more_calls,
        works=rank_state.works + more_works,
        finished=rank_state.finished + more_works,
        collectives=max(rank_state.collectives or 0, collectives[level]),
        in_flight=tuple(
            replace(operation, order=operation.order + more_works)
            for operation in rank_state.in_flight
        ),
    )


def _call_level(rank_state: RankState) -> int:
    """The level at which calls are counted: interfaces before v5 report works only."""
    return layout.LEVEL_CALL if rank_state.version >= FIRST_WITH_CALLS else layout.LEVEL_WORK


def _snapshot(
    folder: Path,
    header: Header,
    rank_states: tuple[RankState, ...],
    at_ns: int,
    life: tuple[str, str],
    dropped: int,
    strings: dict[int, str],
    training: str,
    steps: StepProgress | None = None,
) -> ProcessSnapshot:
    identity = header.identity
    local = launchers.local_rank(identity, launchers.RECORDED)
    gpu = next((state.gpu_bus_id or state.gpu for state in rank_states if state.gpu), "")
    return ProcessSnapshot(
        folder=folder.name,
        host=identity.get("host", "unknown"),
        pid=header.pid,
        gpu=str(local) if local is not None else gpu,
        global_rank=lowest_known((state.global_rank for state in rank_states), identity),
        world=launchers.world_size(identity, launchers.RECORDED),
        restarts=launchers.restarts(identity, launchers.RECORDED),
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
        training=training,
        steps=steps,
    )


# ---- what live pages do not hold, looked up only where it matters ----
def collective_calls(snapshot: ProcessSnapshot, rank_state: RankState) -> int | None:
    """How many collectives a rank has called on a communicator; None where nothing counted them."""
    if rank_state.collectives is not None:
        return rank_state.collectives
    if rank_state.version > 1 and not any(name in PAIRED for name in snapshot.strings.values()):
        return rank_state.calls  # the process has no name of a send
    counters = read_call_counts(snapshot.path / "tally")["tally"]
    own = counters[
        (counters["comm"] == rank_state.number) & (counters["level"] == _call_level(rank_state))
    ]
    if not len(own):
        return None if rank_state.calls else 0
    strings = ProcessStrings(snapshot.strings)
    paired = [strings.function(int(row["func"]), rank_state.version == 1) in PAIRED for row in own]
    return int(own["calls"][~np.array(paired, bool)].sum())


def longest_operation_ns(
    snapshot: ProcessSnapshot, rank_state: RankState, usually: bool = False
) -> int:
    """The longest time that an operation of a communicator has taken so far on one rank; with
    `usually`, the time that 19 of 20 did not exceed.
    """
    if rank_state.longest_ns is not None:
        return rank_state.usual_ns if usually else rank_state.longest_ns
    counters = read_call_counts(snapshot.path / "tally")
    times = counters[counters["tally"]["comm"] == rank_state.number]["times"]
    if usually:
        running = np.cumsum(times["host_histogram"].sum(axis=0, dtype=np.int64))
        bucket = int(np.searchsorted(running, USUALLY * running[-1])) if running[-1] else 0
        return int(bucket_bounds_ns()[bucket + 1]) if running[-1] else 0
    longest = max(int(times[name].max(initial=0)) for name in ("gpu_max_ns", "host_max_ns"))
    return longest if longest < LONGEST_NS else 0
