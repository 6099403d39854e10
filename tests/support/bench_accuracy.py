"""`ncclscope bench` on real NCCL, recorded by ncclscope: calls, durations, loops.

The operations and sizes are those of the ncclsee paper. All ranks share one GPU under CUDA MPS, each
posing as a host. Every call of the benchmark must be in the capture, and its duration in the
capture is compared with the CUDA events that the benchmark recorded around it. Needs numpy only.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ncclscope.bench.libraries import Libraries, find_libraries
from ncclscope.bench.plan import Plan
from ncclscope.bench.rank_placement import placement_on_this_host
from ncclscope.bench.results import Result, Session
from ncclscope.bench.session import LaunchOptions, run_session
from ncclscope.capture.reader import resolve_capture
from ncclscope.launch.environment import Settings, recording_variables
from ncclscope.model.build import open_model
from ncclscope.model.model import Model
from ncclscope.native import plugin_path

MOST_PERCENT, MOST_US, MOST_GAP_PERCENT = 2.0, 3.0, 1.0
SIZES = (1 << 10, 32 << 10, 1 << 20, 32 << 20)
LARGEST = 1 << 30  # with two ranks, back to back
# operation, algorithm it is forced to: TREE's stops are early, so AllReduce is tried as RING, too
SETS = (
    ("allreduce", ""),
    ("allreduce", "RING"),
    ("allgather", ""),
    ("reducescatter", ""),
    ("broadcast", ""),
    ("reduce", ""),
)
RUNS, CALLS = 5, 200
WAYS = {"back to back": 2.0, "held": 0.6}  # of making calls; seconds a run
EXACT_SOURCES = ("gpu", "gpu-repaired")


@dataclass(frozen=True)
class Comparison:
    """One operation and size: the benchmark's calls and ncclscope's operations."""

    ranks: int
    operation: str
    way: str  # of WAYS
    size_bytes: int
    calls: int  # timed, on each rank
    made: int  # with warm-up and check, on all ranks
    recorded: int
    bench_us: float  # medians over calls and ranks
    ours_us: float | None
    source: str  # or why there is none
    gap_percent: float  # of the loop's time, between calls
    gap_us: float  # a call
    host_bound: bool
    wrong: int | None

    @property
    def holds(self) -> bool | None:
        """The bar; None where ncclscope says itself that it has no exact time."""
        if self.ours_us is None or self.source not in EXACT_SOURCES:
            return None
        error_us = abs(self.ours_us - self.bench_us)
        return error_us <= MOST_US or 100 * error_us <= MOST_PERCENT * self.bench_us

    @property
    def verdict(self) -> str:
        """The bar in words."""
        if self.holds is None:
            return "a lower bound" if self.source == "gpu-early" else "no time"
        return "holds" if self.holds else "**does not hold**"

    @property
    def loop(self) -> str:
        """Calls' own times against one pair of events round the loop."""
        if self.gap_percent <= MOST_GAP_PERCENT:
            return f"{100 - self.gap_percent:.2f} %"
        why = "the GPU waits for the host" if self.host_bound else "stamps and launch"
        return f"{100 - self.gap_percent:.1f} %: {self.gap_us:.1f} µs a call, {why}"


def run_benchmark(
    plan: Plan, ranks: int, libraries: Libraries, variables: dict[str, str]
) -> tuple[Session, list[Result]]:
    """Runs one benchmark."""
    sessions: list[Session] = []
    results: list[Result] = []
    options = LaunchOptions(
        libraries,
        placement_on_this_host(ranks),
        dict.fromkeys(range(ranks), 0),
        share=True,
        timeout_s=120,
        environment={**os.environ, **variables},
    )
    run_session(plan, options, sessions.append, results.append)
    return sessions[0], results


def compare(
    session: Session, results: list[Result], plan: Plan, model: Model
) -> Iterator[Comparison]:
    """Compares case by case. Calls of a case follow each other: warm-up, timed, checks."""
    operations = model.tables["operations"]
    warm = max(plan.warm_up, 1)
    before = 0
    whole = operations["part_of"] < 0
    # What events show around a kernel beyond its own time is not part of the call.
    beyond_ns = float(np.median([device.beyond_ns for device in session.devices]))
    for result in results:
        block = warm + result.calls + plan.checks
        bench, ours, sources, reasons, recorded = [], [], [], [], 0
        for times in result.ranks:
            own_rows = np.flatnonzero(whole & (operations["rank"] == times.rank))
            own_rows = own_rows[before : before + block]
            recorded += int((operations["size_bytes"][own_rows] == result.size_bytes).sum())
            timed = own_rows[warm : warm + result.calls]
            bench.append(times.gpu_ns - beyond_ns)
            has_time = operations["duration_ns"][timed] >= 0
            ours.append(operations["duration_ns"][timed][has_time])
            sources += operations["source"][timed].tolist()
            reasons += operations["reason"][timed].tolist()
        before += block
        durations = np.concatenate(ours)
        source = model.words["source"][max(set(sources), key=sources.count)]
        if source == "none":
            source = f"none: {model.words['reason'][max(set(reasons), key=reasons.count)]}"
        loops = sum(loop.gpu_ns for times in result.ranks for loop in times.loops)
        yield Comparison(
            result.case.ranks,
            result.case.spec.title,
            "held" if plan.held else "back to back",
            result.size_bytes,
            result.calls,
            block * len(result.ranks),
            recorded,
            float(np.median(np.concatenate(bench))) / 1e3,
            float(np.median(durations)) / 1e3 if len(durations) else None,
            source,
            100 * result.gap_share,
            result.gap_share * loops / result.calls / len(result.ranks) / 1e3,
            result.host_bound,
            result.wrong,
        )


def run_and_compare(
    plan: Plan, ranks: int, libraries: Libraries, variables: dict[str, str]
) -> list[Comparison]:
    """Runs one benchmark under the plugin, and compares it with its capture."""
    with tempfile.TemporaryDirectory() as directory:
        capture = Path(directory) / "capture"
        recording = recording_variables(Settings(capture, mode="trace"), plugin_path())
        session, results = run_benchmark(plan, ranks, libraries, {**recording, **variables})
        print(
            "events show beyond", [device.beyond_ns for device in session.devices], "ns", flush=True
        )
        model = open_model(resolve_capture(str(capture)))
        return list(compare(session, results, plan, model))


def bench_accuracy(
    worlds: tuple[int, ...],
    ways: list[str],
    keep: Callable[[list[Comparison]], None],
    libraries: Libraries | None = None,
) -> list[Comparison]:
    """Compares all operations and sizes, in these ways; calls `keep` after each operation."""
    libraries = libraries or find_libraries(None, None, False, os.environ)
    results: list[Comparison] = []
    for ranks in worlds:
        for way in ways:
            for operation, algorithm in SETS:
                sizes = SIZES + ((LARGEST,) if ranks == 2 and way != "held" else ())
                plan = Plan(
                    (operation,),
                    sizes,
                    ("int32",),
                    places=("out-of-place",),
                    calls=CALLS,
                    seconds=WAYS[way],
                    runs=RUNS,
                    held=way == "held",
                )
                variables = {"NCCL_ALGO": algorithm} if algorithm else {}
                rows = run_and_compare(plan, ranks, libraries, variables)
                if algorithm:
                    rows = [replace(row, operation=f"{row.operation} {algorithm}") for row in rows]
                results += rows
                keep(results)
    return results
