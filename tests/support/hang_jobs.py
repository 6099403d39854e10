"""Jobs on the simulated NCCL that hang or end in unusual ways, each with a known truth.

`python -m tests.support.hang_jobs NAME` starts all ranks of one; they time out by themselves, as
frameworks do, or the launcher kills them.
"""

import ctypes as c
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncclscope.simulation.nccl import SimulatedNccl

RANKS = 4
MIB = 1 << 20
_FLOAT32, _SUM = 7, 0
_TIMEOUT_S = 5.0  # of what hangs
_PATIENCE_S = 120.0  # of what does not, on a busy machine
_ABSENT_S = _TIMEOUT_S + 8  # of a rank that does not come: longer than the others wait for it
_STEPS = 22  # enough calls that show how long one usually takes
_COMPUTE_S = 0.003
_SCENARIO = "ranks = 4\nchannels = 2\ncommunicator = world\ncall = world AllReduce 1M float32\n"


class Rank:
    """One rank with its communicators."""

    def __init__(self) -> None:
        self.rank = int(os.environ["RANK"])
        self.nccl = SimulatedNccl()
        unique_id = bytes.fromhex(os.environ["HANG_JOB_ID"])
        self.comms = {"world": self.nccl.communicator("world", unique_id, RANKS, self.rank)}
        self.stream = self.nccl.stream()
        self.buffers = self.nccl.memory(16 * MIB), self.nccl.memory(16 * MIB)

    def split(self, name: str, groups: list[list[int]]) -> None:
        """Makes communicators of groups of ranks."""
        color = next(number for number, group in enumerate(groups) if self.rank in group)
        self.comms[name] = self.nccl.split(name, self.comms["world"], color, self.rank)

    def reduce(
        self, name: str, size: int = MIB, wait: bool = True, give_up_s: float = _TIMEOUT_S
    ) -> None:
        """An AllReduce, and a wait for its end that gives up."""
        count = c.c_size_t(size // 4)
        self._do(
            "ncclAllReduce", *self.buffers, count, _FLOAT32, _SUM, self.comms[name], self.stream
        )
        if wait:
            self.wait(give_up_s)

    def pair(self, function: str, name: str, peer: int, give_up_s: float = _TIMEOUT_S) -> None:
        """A send or receive, and a wait for its end that gives up."""
        count, comm = c.c_size_t(MIB // 4), self.comms[name]
        self._do(f"nccl{function}", self.buffers[0], count, _FLOAT32, peer, comm, self.stream)
        self.wait(give_up_s)

    def wait(self, give_up_s: float) -> None:
        """Waits until the stream is idle; raises after a time, as frameworks do."""
        give_up = time.monotonic() + give_up_s
        while self.nccl._library.cudaStreamQuery(self.stream):
            if time.monotonic() > give_up:
                raise TimeoutError
            time.sleep(0.002)

    def abort(self) -> None:
        """Aborts the world's communicator."""
        self._do("ncclCommAbort", self.comms["world"])

    def close(self) -> None:
        """Destroys all communicators."""
        self.nccl.destroy(list(reversed(self.comms.values())))

    def _do(self, function: str, *arguments: Any) -> None:
        self.nccl._do(function, *arguments)


def steps(rank: Rank, name: str = "world", count: int = _STEPS) -> None:
    """Healthy steps."""
    for _ in range(count):
        time.sleep(_COMPUTE_S)
        rank.reduce(name, give_up_s=_PATIENCE_S)


# ---- the jobs ----
def timeout(rank: Rank) -> None:
    """Rank 2 does not come; the others raise after a while and exit by themselves."""
    steps(rank)
    if rank.rank == 2:
        time.sleep(_ABSENT_S)
        sys.exit(1)
    rank.reduce("world")


def exception(rank: Rank) -> None:
    """Rank 2 raises at once; the others time out."""
    steps(rank)
    if rank.rank == 2:
        sys.exit(1)
    rank.reduce("world")


def abort(rank: Rank) -> None:
    """As `timeout`; the others abort the communicator before they exit."""
    try:
        timeout(rank)
    except TimeoutError:
        rank.abort()
        raise


def mismatch(rank: Rank) -> None:
    """Rank 2 calls another size; all time out."""
    steps(rank)
    rank.reduce("world", 2 * MIB if rank.rank == 2 else MIB)


def circle(rank: Rank) -> None:
    """Ranks 0 and 1 use A and B in different orders, and world waits for both."""
    rank.split("A", [[0, 1], [2, 3]])
    rank.split("B", [[0, 1], [2, 3]])
    steps(rank, "A")
    steps(rank, "B")
    for name in ("B", "A") if rank.rank == 1 else ("A", "B"):
        rank.reduce(name, give_up_s=_TIMEOUT_S if rank.rank < 2 else _PATIENCE_S)
    rank.reduce("world")


def extra_call(rank: Rank) -> None:
    """Rank 3 makes one AllReduce more; ranks 0 and 2 end well, rank 1 waits for rank 3."""
    rank.split("dp", [[0, 2], [1, 3]])
    steps(rank)
    if rank.rank == 3:
        rank.reduce("world")
    rank.reduce("dp", give_up_s=_PATIENCE_S if rank.rank in (0, 2) else _TIMEOUT_S)


def pipeline(rank: Rank) -> None:
    """Stage 2 receives and never sends: stage 3 waits for it."""
    steps(rank)
    number = rank.rank
    if number == 0:
        rank.pair("Send", "world", 1, _PATIENCE_S)
    elif number == 1:
        rank.pair("Recv", "world", 0, _PATIENCE_S)
        rank.pair("Send", "world", 2)
    elif number == 2:
        time.sleep(_ABSENT_S)
        sys.exit(1)
    else:
        rank.pair("Recv", "world", 2)


def crossed(rank: Rank) -> None:
    """Ranks 0 and 1 both receive before they send."""
    steps(rank)
    if rank.rank < 2:
        rank.pair("Recv", "world", 1 - rank.rank)
        rank.pair("Send", "world", 1 - rank.rank)


def early_exit(rank: Rank) -> None:
    """Rank 2 leaves without a word in its first second."""
    steps(rank)
    if rank.rank == 2:
        os._exit(1)
    rank.reduce("world")


def forked(rank: Rank) -> None:
    """Healthy; every rank leaves by _exit, as children of multiprocessing do."""
    steps(rank)
    rank.close()
    os._exit(0)


def no_destroy(rank: Rank) -> None:
    """Healthy; ranks exit with communicators open and the last call just made."""
    steps(rank)
    rank.reduce("world", wait=False)
    sys.exit(0)


@dataclass(frozen=True)
class Truth:
    """What is true of a job."""

    job: Callable[[Rank], None]
    verdict: str  # of the communicator that hangs by itself; "" for a healthy job
    culprits: tuple[int, ...] = ()


JOBS = {
    "timeout": Truth(timeout, "never_called", (2,)),
    "exception": Truth(exception, "dead", (2,)),
    "abort": Truth(abort, "never_called", (2,)),
    "mismatch": Truth(mismatch, "mismatch", (2,)),
    "circle": Truth(circle, "circle", (0, 1)),
    "extra_call": Truth(extra_call, "extra_call", (3,)),
    "pipeline": Truth(pipeline, "never_called", (2,)),
    "crossed": Truth(crossed, "circle", (0, 1)),
    "early_exit": Truth(early_exit, "never_called", (2,)),
    "forked": Truth(forked, ""),
    "no_destroy": Truth(no_destroy, ""),
}


def _run_rank(name: str) -> int:
    c.CDLL(None).prctl(1, signal.SIGKILL)  # with the launcher
    rank = Rank()
    try:
        JOBS[name].job(rank)
    except TimeoutError:
        return 1
    rank.close()
    return 0


def _launch(name: str) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        scenario = Path(scratch) / "scenario"
        scenario.write_text(_SCENARIO)
        shared = {
            **os.environ,
            "NCCLSCOPE_SIM_SCENARIO": str(scenario),
            "HANG_JOB_ID": SimulatedNccl().unique_id().hex(),
            "WORLD_SIZE": str(RANKS),
            "LOCAL_WORLD_SIZE": str(RANKS),
        }
        command = [sys.executable, "-m", "tests.support.hang_jobs", name, "--rank"]
        ranks = [
            subprocess.Popen(command, env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(RANKS)
        ]
        return max(rank.wait() for rank in ranks)


if __name__ == "__main__":
    sys.exit(_run_rank(sys.argv[1]) if "--rank" in sys.argv else _launch(sys.argv[1]))
