"""Captures of simulated jobs, process by process as the plugin writes mode trace."""

import shutil
from pathlib import Path

import numpy as np

from ncclscope.capture import layout
from ncclscope.nccl.events import GPU_TIMING_EVENTS, MODE_EVENTS, events_of
from tests.support.laboratory.engine import Job
from tests.support.laboratory.events import Communicator, Kernel
from tests.support.laboratory.rank_slots import EVENT_EXCESS_NS, RankWriter
from tests.support.laboratory.recording import Ints, RecordedProcess, Recording
from tests.support.writer.files import NS, ProcessFolder, Who, nonce_of
from tests.support.writer.meta import Meta
from tests.support.writer.truth import Clocks

ORIGIN_NS = 5_000 * NS  # true time at which a job begins
_UNIX_NS = 1_794_700_000 * NS  # Unix time at true time 0
_INIT_NS = NS // 2  # from the first communicator to the first operation
_BETWEEN_ATTEMPTS_NS = 10 * NS
_VERSIONS = {5: "22809", 6: "23007", 7: "23203"}
_DROPPED_EVENTS = ("Group", "Coll", "KernelCh", "GroupApi", "CollApi", "KernelLaunch")


def _clocks(job: Job, recording: Recording) -> tuple[Clocks, Clocks, Ints]:
    """Of hosts and GPUs, and by how much hosts' Unix times are wrong."""
    rng = np.random.default_rng((job.seed, 77))
    ranks = len(job.ranks)
    hosts = job.host_of(ranks - 1) + 1
    offset_ns = rng.uniform(-1, 1, hosts) * recording.clock_offset_ms * 1e6
    drift_ppm = rng.uniform(-1, 1, hosts) * recording.clock_drift_ppm
    host_clocks = Clocks(ORIGIN_NS, np.rint(offset_ns).astype(np.int64), drift_ppm)
    gpu_offset_ns = rng.uniform(-1, 1, ranks) * NS / 100
    gpu_drift_ppm = rng.uniform(-1, 1, ranks) * recording.gpu_drift_ppm
    gpus = Clocks(ORIGIN_NS, _UNIX_NS + np.rint(gpu_offset_ns).astype(np.int64), gpu_drift_ppm)
    error_ns = rng.uniform(-1, 1, hosts) * recording.realtime_error_ms * 1e6
    return host_clocks, gpus, np.rint(error_ns).astype(np.int64)


def _who(process: RecordedProcess) -> Who:
    job, recording = process.job, process.recording
    ranks, per_host = len(job.ranks), job.machine.ranks_per_host
    environment = {
        "TORCHELASTIC_RUN_ID": "laboratory",
        "TORCHELASTIC_RESTART_COUNT": str(process.attempt),
    }
    if recording.ranks_per_process == 1:
        rank = process.ranks[0]
        sizes = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank % per_host}
        environment |= {name: str(value) for name, value in sizes.items()}
    offset_ns = int(process.clocks.offset_ns[process.node])
    number = (process.attempt * ranks + process.ranks[0]) // recording.ranks_per_process
    return Who(
        host=f"node{process.node}",
        pid=10_000 + number * (2 * recording.ranks_per_process + 2),
        boot_id=f"51309a7e-0000-4000-8000-{process.node:012d}",
        start_ns=int(process.host_ns(-_INIT_NS)),
        realtime_offset_ns=_UNIX_NS - offset_ns + int(process.realtime_error_ns[process.node]),
        mode="trace",
        nonce=nonce_of(number),
        environment=environment,
        more={
            "simulation": "1",
            "nccl_version": _VERSIONS[recording.version],
            "command": "laboratory",
            **({"gpu_timing.in_force": "sampled"} if recording.timed_every > 1 else {}),
        },
    )


def _lost(recording: Recording, kernel: Kernel) -> bool:
    return any(
        rank == kernel.rank and first <= kernel.step <= last
        for rank, first, last in recording.dropped
    )


def _mask(recording: Recording) -> int:
    """Event bits that the recorder asked for; sampled launches need no kernel events."""
    mask = events_of(recording.version) & MODE_EVENTS["trace"]
    return mask & ~GPU_TIMING_EVENTS if recording.timed_every > 1 else mask


def _open(process: RecordedProcess, meta: Meta, who: Who) -> dict[tuple[str, int], int]:
    """Communicators of the process; numbers by name and rank."""
    job, recording = process.job, process.recording
    numbers: dict[tuple[str, int], int] = {}
    for communicator in job.communicators.values():
        for rank in process.ranks:
            if rank not in communicator.members:
                continue
            number = numbers[communicator.name, rank] = len(numbers)
            meta.communicator(
                communicator.name.split("#")[0] if recording.names else "",
                gpu_uuid=(0x51309A7E << 96 | rank).to_bytes(16, "big"),
                gpu_bus_id=f"00000000:{0x10 + rank % job.machine.ranks_per_host:02X}:00.0",
                id=process.comm_ids[communicator.name],
                t0=who.start_ns + 1_000 + number * 50_000,
                comm=number,
                version=recording.version,
                rank=communicator.members.index(rank),
                ranks=len(communicator.members),
                nodes=_nodes(job, communicator),
                tid=who.pid,
                mask=_mask(recording),
            )
    if recording.timed_every > 1:
        for clock in range(len(process.ranks)):  # a GPU each
            meta.event_clock(0, who.start_ns + 1_000, EVENT_EXCESS_NS, clock)
    return numbers


def _nodes(job: Job, communicator: Communicator) -> int:
    return len({job.host_of(rank) for rank in communicator.members})


def _write_process(capture: Path, process: RecordedProcess) -> None:
    who = _who(process)
    meta, folder = Meta(who), ProcessFolder(capture, who)
    numbers = _open(process, meta, who)
    many = len(process.ranks)
    dropped = 0
    over_ns = 0.0
    for place, rank in enumerate(process.ranks):
        own = {name: number for (name, owner), number in numbers.items() if owner == rank}
        threads = place, many + place
        writer = RankWriter(process, rank, meta, who.nonce, threads, who.pid, own)
        kernels = process.job.ranks[rank].kernels
        recorded = [k for k in kernels if not _lost(process.recording, k)]
        dropped += len(kernels) - len(recorded)
        over_ns = max(over_ns, *(k.end_ns for k in kernels), 0.0)
        writer.write(folder, recorded)
    folder.close()
    last_ns = int(process.host_ns(over_ns)) + NS // 1000
    meta.syncs(who.start_ns, last_ns + NS // 10, folder.slots_written)
    for event in _DROPPED_EVENTS if dropped else ():
        each = process.recording.channels if event == "KernelCh" else 1
        meta.count("dropped_arena_full", layout.KINDS[event] - 1, each * dropped)
    if not process.killed:
        for number in numbers.values():
            meta.communicator_end(number, last_ns + number * 1_000)
        meta.end(last_ns + NS // 10, folder.slots_written)
    folder.write("meta", layout.FILE_META, meta.slots())


def write_capture(
    capture: Path, job: Job, recording: Recording | None = None, earlier: tuple[Job, ...] = ()
) -> None:
    """Writes a job's capture; `earlier`: attempts before it, which were killed at their end."""
    recording = recording or Recording()
    shutil.rmtree(capture, ignore_errors=True)
    capture.mkdir(parents=True)
    clocks, gpus, realtime_error_ns = _clocks(job, recording)
    begin_ns = ORIGIN_NS + _INIT_NS
    attempts = (*earlier, job)
    for attempt, one in enumerate(attempts):
        rng = np.random.default_rng((job.seed, attempt, 78))
        ids = {name: int(rng.integers(1, 1 << 62)) for name in one.communicators}
        each = recording.ranks_per_process
        for first in range(0, len(one.ranks), each):
            ranks = tuple(range(first, first + each))
            if set(ranks) & set(recording.missing):
                continue
            process = RecordedProcess(
                one, recording, ranks, attempt, begin_ns, one is not job, clocks, gpus,
                realtime_error_ns, ids,
            )  # fmt: skip
            _write_process(capture, process)
        begin_ns += int(max(k.end_ns for k in one.operations)) + _BETWEEN_ATTEMPTS_NS
