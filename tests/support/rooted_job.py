"""Gathers and Scatters of a simulated NCCL, which reports sends and receives."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ncclscope.native import plugin_path
from ncclscope.simulation.nccl import SimulatedNccl
from tests.support.paths import SUPPORT

RANKS, ITERATIONS = 3, 4
ALL_CASES = ("colls", "p2p", "a2a", "rooted")


def record_rooted(capture: Path, cases: Sequence[str] = ALL_CASES) -> None:
    """Runs cases of simulated_workload.py on all ranks, each posing as a host of its own."""
    base = {k: v for k, v in os.environ.items() if not k.startswith("NCCL")}
    shared = base | {
        "NCCL_PROFILER_PLUGIN": str(plugin_path()),
        "NCCLSCOPE_DIR": str(capture),
        "NCCLSCOPE_MODE": "trace",
        "NCCLSCOPE_SIM_RELEASE": "2.28",
        "WORLD_SIZE": str(RANKS),
        "ID": SimulatedNccl().unique_id().hex(),
    }
    workload = SUPPORT / "simulated_workload.py"
    command = [sys.executable, workload, str(ITERATIONS), *cases]
    ranks = [subprocess.Popen(command, env=shared | {"RANK": str(r)}) for r in range(RANKS)]
    try:
        assert [rank.wait(60) for rank in ranks] == [0] * RANKS
    finally:
        for rank in ranks:
            rank.kill()
