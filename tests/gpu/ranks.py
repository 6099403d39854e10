"""Starts the ranks of a job on one GPU: each poses as a host of its own, or all as one host.

`python -m tests.gpu.ranks RANKS CASE…` does so from a shell, and prints what each rank says.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORKLOAD = Path(__file__).with_name("workload.py")


@dataclass(frozen=True)
class Job:
    """What to run, on which NCCL, with how many ranks."""

    cases: tuple[str, ...]
    ranks: int
    library: Path | None = None  # None: the NCCL that PyTorch brings
    ranks_per_host: int = 1  # NCCL 2.30.3 and later allow more than one on one GPU


def environment(job: Job, rank: int, rendezvous: str) -> dict[str, str]:
    """A rank's variables."""
    env = {
        "RANK": str(rank),
        "WORLD_SIZE": str(job.ranks),
        "RDV": rendezvous,
        "NCCL_HOSTID": f"host{rank // job.ranks_per_host}",
        "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_IB_DISABLE": "1",
    }
    if job.ranks_per_host > 1:
        env["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
    if job.library:
        env["NCCL_LIB"] = str(job.library)
    return env


def run_job(job: Job, variables: dict[str, str], timeout: float = 180) -> list[dict[str, Any]]:
    """Runs the job and returns what each rank says it called."""
    with tempfile.TemporaryDirectory() as scratch:
        started = []
        for rank in range(job.ranks):
            env = os.environ | environment(job, rank, f"{scratch}/id") | variables
            command = [sys.executable, str(WORKLOAD), *job.cases]
            started.append(
                subprocess.Popen(
                    command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
                )
            )
        answers = []
        for process in started:
            try:
                out, err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                for other in started:
                    other.kill()
                raise
            lines = [line for line in out.splitlines() if line.startswith("{")]
            if not lines:
                raise RuntimeError(f"a rank said nothing:\n{err[-3000:]}")
            answers.append(json.loads(lines[-1]))
        return sorted(answers, key=lambda answer: int(answer["rank"]))


if __name__ == "__main__":
    for answer in run_job(Job(tuple(sys.argv[2:]), int(sys.argv[1])), {}):
        print(json.dumps(answer))
