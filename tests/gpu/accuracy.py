"""Durations in the model against CUDA events around the same calls of real NCCL."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ncclscope.capture.reader import resolve_capture
from ncclscope.model.build import open_model
from ncclscope.model.model import Model
from ncclscope.native import plugin_path
from tests.gpu.mps import mps

WORKLOAD = Path(__file__).with_name("timed_workload.py")
SIZES = (1 << 10, 1 << 20, 32 << 20, 256 << 20)
# function, algorithm it is forced to; the first ones end when thread 0 says so, the others later
SOUND = (("AllReduce", "RING"), ("AllGather", "RING"), ("AllGather", "PAT"))
EARLY = (("AllReduce", "TREE"), ("SendRecv", ""))
SKIPPED = 5  # first calls of a size, which connect and warm up
MOST_PERCENT, MOST_US = 2.0, 3.0


@dataclass(frozen=True)
class Accuracy:
    """One function, algorithm and size, all ranks together."""

    function: str
    algorithm: str
    size_bytes: int
    source: str
    events_us: float  # medians
    model_us: float
    error_us: float  # of single calls, median of the absolute
    error_percent: float

    @property
    def holds(self) -> bool:
        """The bar, which only sound algorithms can keep."""
        return self.error_percent <= MOST_PERCENT or self.error_us <= MOST_US


def run_job(function: str, algorithm: str, capture: Path) -> dict[int, dict[str, list[float]]]:
    """Two ranks under the plugin; by rank and size the microseconds of each call."""
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
            }
            if algorithm:
                env["NCCL_ALGO"] = algorithm
            command = [sys.executable, str(WORKLOAD), function, *map(str, SIZES)]
            ranks.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True))
        answers = [json.loads(rank.communicate(timeout=120)[0].splitlines()[-1]) for rank in ranks]
    return {answer["rank"]: answer["times_us"] for answer in answers}


def compare(
    function: str, algorithm: str, said: dict[int, dict[str, list[float]]], model: Model
) -> list[Accuracy]:
    """Size by size, call by call: the calls of a size come one after the other."""
    operations = model.tables["operations"]
    found = []
    for number, size in enumerate(SIZES):
        events, modelled, sources = [], [], []
        for rank, times in said.items():
            mine = np.flatnonzero((operations["rank"] == rank) & (operations["part_of"] < 0))
            if function == "SendRecv":  # both ran in one kernel
                mine = mine[operations["form"][mine] == 1]
            calls = len(times[str(size)])
            mine = mine[number * calls : (number + 1) * calls][SKIPPED:]
            timed = operations["duration_ns"][mine] >= 0
            events += np.array(times[str(size)][SKIPPED:])[timed].tolist()
            modelled += (operations["duration_ns"][mine][timed] / 1e3).tolist()
            sources += operations["source"][mine][timed].tolist()
        if not events:
            continue
        errors = [abs(m - e) for m, e in zip(modelled, events, strict=True)]
        found.append(
            Accuracy(
                function,
                algorithm or "–",
                size,
                model.words["source"][statistics.mode(sources)],
                statistics.median(events),
                statistics.median(modelled),
                statistics.median(errors),
                100 * statistics.median(e / t for e, t in zip(errors, events, strict=True)),
            )
        )
    return found


def accuracy() -> list[Accuracy]:
    """All functions and algorithms."""
    found = []
    with mps(), tempfile.TemporaryDirectory() as directory:
        for function, algorithm in (*SOUND, *EARLY):
            capture = Path(directory) / f"{function}-{algorithm}"
            said = run_job(function, algorithm, capture)
            model = open_model(resolve_capture(str(capture)))
            found += compare(function, algorithm, said, model)
            print(*found[-len(SIZES) :], sep="\n", flush=True)
    return found
