"""Durations in the model against CUDA events around the same calls of real NCCL."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from ncclscope.capture.reader import resolve_capture
from ncclscope.model.build import open_model
from ncclscope.model.model import Model
from ncclscope.native import plugin_path
from tests.gpu.mps import mps
from tests.gpu.timing import Placing

WORKLOAD = Path(__file__).with_name("timed_workload.py")
SIZES = (1 << 10, 1 << 20, 32 << 20, 256 << 20)
# Function and the algorithm that it is forced to use; of the first the stop stamp is exact.
EXACT = (("AllReduce", "RING"), ("AllGather", "RING"), ("AllGather", "PAT"))
EARLY = (("AllReduce", "TREE"), ("SendRecv", ""))
SYMMETRIC = "symmetric"  # kernels on registered memory, whatever the algorithm
SAMPLED_SIZES = (64 << 10, 1 << 20, 16 << 20)
SAMPLED_CALLS = 600  # of a size: the first eight are timed, then one of 64
SAMPLED_BETWEEN_HOSTS = (*EARLY, ("Broadcast", ""), ("AllReduce", "RING"))
SAMPLED_ON_ONE_HOST = (
    ("Broadcast", ""),
    ("SendRecv", ""),
    ("AllReduce", ""),
    ("AllReduce", SYMMETRIC),
)
SKIPPED = 5  # first calls of a size, which connect and warm up
MOST_PERCENT, MOST_US = 2.0, 3.0


@dataclass(frozen=True)
class Accuracy:
    """One function, algorithm and size, all ranks together."""

    function: str
    algorithm: str
    size_bytes: int
    source: str
    timed: int  # calls
    events_us: float  # medians
    model_us: float
    error_us: float  # of single calls, median of the absolute
    error_percent: float

    @property
    def holds(self) -> bool:
        """Whether the bar holds; only exact stop stamps can."""
        return self.error_percent <= MOST_PERCENT or self.error_us <= MOST_US


def run_job(
    function: str,
    algorithm: str,
    capture: Path,
    sizes: Sequence[int] = SIZES,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> dict[int, dict[str, list[float]]]:
    """Runs two ranks under the plugin; returns by rank and size the microseconds of each call."""
    with tempfile.TemporaryDirectory() as scratch:
        ranks = []
        for rank in range(2):
            env = os.environ | {
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "RDV": f"{scratch}/id",
                "NCCL_HOSTID": f"host{rank}",
                "NCCL_SOCKET_IFNAME": "lo",
                "NCCL_IB_DISABLE": "1",
                "NCCL_PROFILER_PLUGIN": str(plugin_path()),
                "NCCLSCOPE_DIR": str(capture),
                "NCCLSCOPE_MODE": "trace",
                **settings,
            }
            if algorithm == SYMMETRIC:
                env["SYMMETRIC"] = "1"
            elif algorithm:
                env["NCCL_ALGO"] = algorithm
            command = [sys.executable, str(WORKLOAD), function, *map(str, sizes)]
            ranks.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True))
        answers = [json.loads(rank.communicate(timeout=120)[0].splitlines()[-1]) for rank in ranks]
    return {answer["rank"]: answer["times_us"] for answer in answers}


def compare(
    function: str,
    algorithm: str,
    times_by_rank: dict[int, dict[str, list[float]]],
    model: Model,
    sizes: Sequence[int] = SIZES,
    sampled: bool = False,
) -> list[Accuracy]:
    """The accuracy of each size; the calls of a size follow each other. `sampled`: only of calls
    that CUDA events timed, not of those for which a network's steps stand in.
    """
    operations = model.tables["operations"]
    results = []
    for number, size in enumerate(sizes):
        events, modelled, sources = [], [], []
        for rank, times in times_by_rank.items():
            rows = np.flatnonzero((operations["rank"] == rank) & (operations["part_of"] < 0))
            if function == "SendRecv":  # both ran in one kernel
                rows = rows[operations["form"][rows] == 1]
            calls = len(times[str(size)])
            rows = rows[number * calls : (number + 1) * calls][SKIPPED:]
            timed = operations["duration_ns"][rows] >= 0
            if sampled:
                names = [model.words["source"][k] for k in operations["source"][rows].tolist()]
                timed &= np.array([name.startswith("gpu-event") for name in names], bool)
            events += np.array(times[str(size)][SKIPPED:])[timed].tolist()
            modelled += (operations["duration_ns"][rows][timed] / 1e3).tolist()
            sources += operations["source"][rows][timed].tolist()
        if not events:
            continue
        errors = [abs(m - e) for m, e in zip(modelled, events, strict=True)]
        results.append(
            Accuracy(
                function,
                algorithm or "–",
                size,
                model.words["source"][statistics.mode(sources)],
                len(events),
                statistics.median(events),
                statistics.median(modelled),
                statistics.median(errors),
                100 * statistics.median(e / t for e, t in zip(errors, events, strict=True)),
            )
        )
    return results


def accuracy() -> list[Accuracy]:
    """The accuracy of all functions and algorithms."""
    results = []
    with mps(), tempfile.TemporaryDirectory() as directory:
        for function, algorithm in (*EXACT, *EARLY):
            capture = Path(directory) / f"{function}-{algorithm}"
            times_by_rank = run_job(function, algorithm, capture)
            model = open_model(resolve_capture(str(capture)))
            results += compare(function, algorithm, times_by_rank, model)
            print(*results[-len(SIZES) :], sep="\n", flush=True)
    return results


def sampled_accuracy(placing: Placing) -> Iterator[Accuracy]:
    """Times of launches that the recorder samples, where KernelCh's are no truth or do not exist."""
    settings = {
        "NCCLSCOPE_GPU_TIMING": "sampled",
        "NCCL_LIB": str(placing.library),
        "CALLS": str(SAMPLED_CALLS),
    }
    if placing.hosts == 1:
        settings |= {"NCCL_HOSTID": "host", "NCCL_MULTI_RANK_GPU_ENABLE": "1"}
    cases = SAMPLED_BETWEEN_HOSTS if placing.hosts > 1 else SAMPLED_ON_ONE_HOST
    with tempfile.TemporaryDirectory() as directory:
        for number, (function, algorithm) in enumerate(cases):
            capture = Path(directory) / str(number)
            try:
                times = run_job(function, algorithm, capture, SAMPLED_SIZES, settings)
            except (IndexError, subprocess.TimeoutExpired) as failure:
                print(f"{placing.title}, {function} {algorithm}: {failure!r}", file=sys.stderr)
                continue
            model = open_model(resolve_capture(str(capture)))
            yield from compare(function, algorithm, times, model, SAMPLED_SIZES, sampled=True)


SAMPLED_HEADER = [
    "NCCL, ranks", "function", "algorithm", "bytes", "source", "calls timed", "CUDA events, µs",
    "ncclscope, µs", "error of a call, µs", "%",
]  # fmt: skip


def sampled_rows(placing: Placing, results: Sequence[Accuracy]) -> list[list[object]]:
    """Rows of the table."""
    return [
        [
            placing.title, a.function, a.algorithm, f"{a.size_bytes:,}", a.source, a.timed,
            f"{a.events_us:.1f}", f"{a.model_us:.1f}", f"{a.error_us:.1f}", f"{a.error_percent:.2f}",
        ]
        for a in results
    ]  # fmt: skip
