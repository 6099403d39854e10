"""Bytes that a capture takes for each operation, and apart from them."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.loads import Shape, callbacks_made, holds, run_load, scratch, the_process
from benchmarks.results import publish, table
from ncclscope.capture.layout import SLOT_BYTES
from ncclscope.native import player_path
from tests.support.player import read_transcript, recording, transcript_files, write_transcript

BAR_BYTES = 512
LONG_S = 6
IDLE_S = 10
# What NCCL has to report where no network is involved: trace mode's events less ProxyOp.
TRACE_WITHOUT_PROXY = "0xFF47"
REAL_JOB = "2.28.9-v5-2ranks-ddp-densenet121"
REAL_ROUNDS = 200
COLL_API = 0x200
STEP_OR_CTRL = (0x10, 0x20)  # event bits that trace mode does not ask for


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of operation, recorded in one mode."""

    title: str
    mode: str
    shape: Shape
    proxy: bool
    operations_per_s: int

    def callbacks(self) -> int:
        """Callbacks an operation."""
        return self.shape.callbacks(self.mode) - (0 if self.proxy else 6 * self.shape.channels)

    def environment(self, capture: Path) -> dict[str, str]:
        """In which it is recorded."""
        env = recording(capture, self.mode, NCCLSCOPE_DISK_LIMIT="8G")
        return env if self.proxy else env | {"NCCLSCOPE_EVENTS": TRACE_WITHOUT_PROXY}


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes an operation, all files of the capture together."""

    events: float  # slots of events and their extensions
    total: float
    one_bytes: int | None  # a capture of one operation


ONE_HOST = Case("trace, one host, 2 channels", "trace", Shape(2, 0), False, 20_000)
NETWORK = Case("trace, over a network, 2 channels", "trace", Shape(2, 0), True, 20_000)
CASES = (
    ONE_HOST,
    Case("the same, 100 operations/s", "trace", Shape(2, 0), False, 100),
    NETWORK,
    Case("full, over a network, 2 channels of 8 steps", "full", Shape(2, 8), True, 10_000),
    Case("profile, 2 channels", "profile", Shape(2, 0), True, 20_000),
)


def capture_bytes(capture: Path) -> int:
    """All files."""
    return sum(path.stat().st_size for path in capture.rglob("*") if path.is_file())


def record(capture: Path, case: Case, operations: int) -> int:
    """Records `operations` operations at the case's pace; bytes of the capture."""
    pace = ["--collectives", operations, "--rate", case.operations_per_s * case.callbacks()]
    printed = run_load(case.environment(capture), *case.shape.options(), *pace)
    assert callbacks_made(printed) == operations * case.callbacks()
    process = the_process(capture)
    assert process.dropped() == 0
    assert not process.counters.get(("rotated_out", 0))
    return capture_bytes(capture)


def cost_of(case: Case, directory: Path) -> Cost:
    """Over a run long enough that nothing else counts."""
    operations = case.operations_per_s * LONG_S
    short, long = directory / "short", directory / "long."  # headers hold the path: equal lengths
    fixed_bytes = record(short, case, 1)
    grown = record(long, case, operations) - fixed_bytes
    slots = len(the_process(long).slots)
    shutil.rmtree(directory)
    return Cost(slots * SLOT_BYTES / operations, grown / (operations - 1), fixed_bytes)


def trace_lines() -> list[dict[str, Any]]:
    """One rank of a training job as NCCL reported it, as far as trace mode asks for it."""
    lines = read_transcript(transcript_files(REAL_JOB)[0])
    left_out = {line["h"] for line in lines if line.get("type") in STEP_OR_CTRL}
    return [line for line in lines if line.get("h") not in left_out]


def play(transcript: Path, capture: Path) -> int:
    """Records what a transcript says; bytes of the capture."""
    command = [str(player_path()), "play", str(transcript)]
    env = recording(capture, "trace", NCCLSCOPE_DISK_LIMIT="8G")
    subprocess.run(command, env=env, capture_output=True, check=True)
    assert the_process(capture).dropped() == 0
    return capture_bytes(capture)


def real_job(directory: Path) -> Cost:
    """What a long job of that kind takes: its calls again and again on the same communicators."""
    lines = trace_lines()
    opened, closed = ([line for line in lines if line["cb"] == cb] for cb in ("init", "finalize"))
    calls = [line for line in lines if line["cb"] not in ("init", "finalize")]
    operations = sum(line.get("type") == COLL_API for line in lines)
    sizes = []
    for rounds in (1, REAL_ROUNDS):
        path = write_transcript(directory / "job.jsonl", [*opened, *calls * rounds, *closed])
        sizes.append(play(path, directory / f"rounds-{rounds:05}"))
    slots = len(the_process(directory / f"rounds-{REAL_ROUNDS:05}").slots)
    grown = (sizes[1] - sizes[0]) / operations / (REAL_ROUNDS - 1)
    return Cost(slots * SLOT_BYTES / operations / REAL_ROUNDS, grown, None)


def idle_bytes_per_s(directory: Path) -> float:
    """What a process writes for being there; live page and tally are rewritten in place."""
    sizes = []
    for pause_s in (1, 1 + IDLE_S):
        capture = directory / f"idle-{pause_s:05}"
        shape = ["--collectives", 1, *ONE_HOST.shape.options()]
        waiting = ["--pause", pause_s * 1000, "--generations", 2]
        run_load(ONE_HOST.environment(capture), *shape, *waiting)
        sizes.append(capture_bytes(capture))
    return (sizes[1] - sizes[0]) / IDLE_S


def main() -> None:
    """Measures every case and holds trace mode against the bar."""
    with scratch() as directory:
        costs = {case.title: cost_of(case, directory / "case") for case in CASES}
        costs[f"trace, real DDP job ({REAL_JOB})"] = real_job(directory)
        idle = idle_bytes_per_s(directory)
    report(costs, idle)


def report(costs: dict[str, Cost], idle_bytes: float) -> None:
    """Publishes, and says what the bytes are."""
    rows: list[list[object]] = [
        [
            title,
            f"{cost.events:.1f}",
            f"{cost.total - cost.events:.1f}",
            f"{cost.total:.1f}",
            "" if cost.one_bytes is None else f"{cost.one_bytes:,}",
        ]
        for title, cost in costs.items()
    ]
    header = ["operation", "slots of its events", "everything else", "bytes an operation"]
    header.append("capture of one operation")
    one_host, network = costs[ONE_HOST.title].total, costs[NETWORK.title].total
    body = (
        f"{table(header, rows)}\n\n"
        f"Bytes of all files of the capture over {LONG_S} s of load, less those of a capture of "
        f"one operation, divided by operations; {ONE_HOST.operations_per_s:,} operations/s in one "
        f"thread where nothing else is said, {CASES[3].operations_per_s:,} in full mode. A capture "
        "of one operation is mostly headers: schema and identity in each of its files. A process "
        f"that does nothing writes {idle_bytes:.0f} bytes/s of clock pairs. Everything else: Block "
        "slots before each run of slots of one thread, newer versions of slots that were still "
        "open when they were written, padding, clock pairs.\n\n"
        f"What the bytes are: an AllReduce with 2 channels on one host is 7 slots of {SLOT_BYTES} "
        "bytes: GroupApi, CollApi, KernelLaunch, Group, Coll, 2 KernelCh. A "
        "network adds a ProxyOp for each channel and direction, 4 slots; full mode adds a "
        "ProxyCtrl and a slot for each step. Profile mode keeps counters and writes no events.\n\n"
        f"Bar: at most {BAR_BYTES} bytes an operation in trace mode with 2 channels. On one host "
        f"it {holds(one_host <= BAR_BYTES)} ({one_host - BAR_BYTES:+.1f} bytes); over a network it "
        f"{holds(network <= BAR_BYTES)} ({network - BAR_BYTES:+.1f} bytes)."
    )
    publish("bytes-per-operation", body)
