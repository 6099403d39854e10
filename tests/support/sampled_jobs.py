"""Simulated jobs whose launches are sampled, and what the recorder wrote of them."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.capture import dtypes, layout
from ncclscope.capture.call_counts import CallCount, merge_call_counts, read_call_counts
from ncclscope.capture.housekeeping import identity_of, process_folders
from ncclscope.capture.metadata import by_kind, read_meta_file
from ncclscope.capture.segment import Damage, open_file, view_slots
from ncclscope.native import plugin_path
from ncclscope.simulation.nccl import SimulatedNccl
from tests.support.paths import SUPPORT

# The driver's functions that events around launches need, and those of marker kernels.
EVENT_FUNCTIONS = (
    "cuCtxGetCurrent", "cuEventCreate", "cuEventRecord", "cuEventQuery", "cuEventElapsedTime",
    "cuStreamIsCapturing", "cuThreadExchangeStreamCaptureMode",
)  # fmt: skip
MARKER_FUNCTIONS = (
    "cuModuleLoadData", "cuModuleGetFunction", "cuMemHostRegister_v2", "cuLaunchKernel",
    "cuMemHostGetDevicePointer_v2", "cuStreamCreate", "cuStreamGetCaptureInfo_v2",
)  # fmt: skip
SIMULATED_EXCESS_NS = 2000  # what the simulated GPU takes for an event
_TRIES = 10
REASONS = {name: number for number, name in enumerate(layout.TIMING_REASONS)}
NOT_SAMPLED, LAUNCH = (layout.UNTIMED.index(name) for name in ("not sampled", "launch not timed"))


@dataclass
class Rank:
    """What one process of the job left behind."""

    folder: Path
    printed: list[dict[str, Any]] = field(default_factory=list)

    @property
    def identity(self) -> dict[str, str]:
        return identity_of(self.folder)

    def meta(self, kind: str) -> npt.NDArray[np.void]:
        """Metadata slots of one kind, in order."""
        _, slots = read_meta_file(self.folder / "meta", Damage())
        return by_kind(slots).of(kind)

    def slots(self, kind: str) -> npt.NDArray[np.void]:
        """Slots of one kind in the log files."""
        parts = []
        for path in sorted(self.folder.glob("log.*")):
            header, data = open_file(path)
            slots = view_slots(data, header.header_bytes, Damage())
            parts.append(slots[slots["kind"] == layout.KINDS[kind]])
        return np.concatenate(parts).view(dtypes.OURS.dtypes[kind])

    def counters(self) -> dict[str, int]:
        """The last value of every counter, events added up."""
        last = {
            (int(slot["counter"]), int(slot["event"])): int(slot["value"])
            for slot in self.meta("Count")
        }
        sums: Counter[str] = Counter()
        for (number, _), value in last.items():
            sums[layout.COUNTERS[number]] += value
        return dict(sums)

    def call_counts(self, level: int) -> list[CallCount]:
        """What was counted by key, at one level."""
        counts = merge_call_counts(read_call_counts(self.folder / "tally"), np.empty(0))
        return [count for count in counts if count.key.level == level]


def sums(rank: Rank, level: int = layout.LEVEL_WORK) -> tuple[int, int, int, int]:
    """Operations on record, timed by events, not sampled, and sampled but not timed."""
    counts = rank.call_counts(level)
    return (
        sum(count.calls for count in counts),
        sum(int(count.times["event_count"]) for count in counts),
        sum(int(count.times["untimed"][NOT_SAMPLED]) for count in counts),
        sum(int(count.times["untimed"][LAUNCH]) for count in counts),
    )


def launches(rank: Rank) -> dict[str, int]:
    """What became of the sampled launches."""
    prefix = "launches_"
    return {k.removeprefix(prefix): v for k, v in rank.counters().items() if k.startswith(prefix)}


def run_sampled(
    capture: Path,
    *cases: str,
    ranks: int = 2,
    mode: str = "profile",
    release: str = "2.28",
    one_host: bool = True,
    codes: int = 0,
    **variables: str,
) -> list[Rank]:
    """Runs the cases of sampled_workload.py; every rank must exit with `codes`."""
    recorded = {
        "NCCL_PROFILER_PLUGIN": str(plugin_path()),
        "NCCLSCOPE_DIR": str(capture),
        "NCCLSCOPE_MODE": mode,
        "NCCLSCOPE_GPU_TIMING": "sampled",
    }
    printed = _run(cases, ranks, release, one_host, codes, recorded | variables)
    by_pid = {folder.name.split(".")[-2]: folder for folder in process_folders(capture)}
    return [Rank(by_pid[str(pid)], lines) for pid, lines in printed.items()]


def run_without_plugin(
    *cases: str, ranks: int = 2, release: str = "2.28"
) -> list[list[dict[str, Any]]]:
    """What the ranks print where nobody profiles them."""
    nobody = {"NCCL_PROFILER_PLUGIN": "none"}
    return list(_run(cases, ranks, release, True, 0, nobody).values())


def _run(
    cases: Sequence[str],
    ranks: int,
    release: str,
    one_host: bool,
    codes: int,
    variables: dict[str, str],
) -> dict[int, list[dict[str, Any]]]:
    """What each process printed."""
    base = {name: value for name, value in os.environ.items() if not name.startswith("NCCL")}
    shared = base | {
        "NCCLSCOPE_SIM_RELEASE": release,
        "WORLD_SIZE": str(ranks),
        "ID": SimulatedNccl().unique_id().hex(),
        **variables,
    }
    command = [sys.executable, str(SUPPORT / "sampled_workload.py"), *cases]
    jobs = []
    for rank in range(ranks):
        own = {"RANK": str(rank)} | ({} if one_host else {"NCCL_HOSTID": f"host{rank}"})
        jobs.append(subprocess.Popen(command, env=shared | own, stdout=subprocess.PIPE, text=True))
    try:
        outputs = [job.communicate(timeout=60)[0] for job in jobs]
    finally:
        for job in jobs:
            job.kill()
    assert [job.returncode for job in jobs] == [codes] * ranks
    return {
        job.pid: [json.loads(line) for line in output.splitlines()]
        for job, output in zip(jobs, outputs, strict=True)
    }


def run_calibrated(
    capture: Path, *cases: str, excess_ns: int | None = None, **options: Any
) -> list[Rank]:
    """Runs the cases until every rank knows what CUDA events add to its times, and until that is
    `excess_ns`, if given: on a busy machine the simulated GPU may be slower than the recorder's
    patience of 300 ms, or slow while it is measured.
    """
    measured: list[tuple[int, int]] = []
    for attempt in range(_TRIES):
        ranks = run_sampled(capture / str(attempt), *cases, **options)
        clocks = np.concatenate([rank.meta("EventClock") for rank in ranks])
        measured = [(int(one["calibrated"]), int(one["excess_median_ns"])) for one in clocks]
        if all(done and excess_ns in (None, found_ns) for done, found_ns in measured):
            return ranks
    raise AssertionError(f"no calibration in {_TRIES} runs; in the last, (done, ns): {measured}")
