"""Kinds of jobs that run as real processes on the simulated NCCL: hangs, timeouts, exits, circles,
calls too many, and scenarios whose truth is in their text.
"""

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from ncclscope.simulation.job import run_job
from ncclscope.simulation.nccl import SimulatedNccl
from ncclscope.simulation.scenario_lines import parse_scenario
from tests.support.laboratory.process_rank import ID_VARIABLE
from tests.support.laboratory.truth import Origin, Status, Truth
from tests.support.paths import ROOT
from tests.support.player import recording

_MACHINE = """ranks = {ranks}
channels = 2
latency_us = 10
bandwidth_gb_s = 2
communicator = x
call = x AllReduce 1M float32
"""
_AFTER_FIRST_EXIT_S = 2.0  # a launcher kills what still runs


@dataclass(frozen=True, slots=True)
class ProcessKind:
    """A job of real processes, or a scenario, and what is true of it."""

    name: str
    ranks: int = 4
    job: str = ""  # a function of process_rank
    scenario: str = ""  # or a scenario's text
    mode: str = "full"
    seconds: float = 60.0  # it is killed after this time
    kill_at_first_exit: bool = False  # as launchers do, when a rank exits with a code
    fork: bool = False
    status: Status = field(default_factory=Status)
    late: tuple[int, ...] = ()  # ranks that have to be named
    slow_link: tuple[int, int] = (-1, -1)
    may_ranks: tuple[int, ...] = ()
    may_families: tuple[str, ...] = ("data_quality",)
    never_said: tuple[str, ...] = ()
    # Times are the machine's: on a busy one, ranks are late that nobody planted.
    machine_noise: bool = True

    def write(self, capture: Path, seed: int = 0) -> Truth:
        """Runs the job; its times are those of the machine."""
        shutil.rmtree(capture, ignore_errors=True)
        began = time.monotonic()
        if self.scenario:
            run_job(parse_scenario(self.scenario), recording(capture, self.mode))
        else:
            self._run(capture)
        run_ns = (time.monotonic() - began) * 1e9
        origins = tuple(Origin("host", (rank,), (), 0.0, 0, 0.0, 0.1, True) for rank in self.late)
        if self.slow_link[0] >= 0:
            origins += (Origin("transfer", self.slow_link, (), 0.0, 0, 0.0, 0.1, True),)
        families = self.may_families
        if self.status.exit_code:
            families += ("hang", "mismatch")
        if self.machine_noise:
            families += ("straggler",)
        return Truth(
            self.name, seed, self.ranks, origins, run_ns, run_ns, 0.0, 0.0, 0.0, self.may_ranks,
            families, False, self.status, self.never_said,
        )  # fmt: skip

    def _run(self, capture: Path) -> None:
        """Starts all ranks, as a launcher does, and ends them."""
        scenario = capture.with_name(f"{capture.name}.machine")
        scenario.write_text(_MACHINE.format(ranks=self.ranks))
        environment = recording(capture, self.mode) | {
            "NCCLSCOPE_SIM_SCENARIO": str(scenario),
            "WORLD_SIZE": str(self.ranks),
            "LOCAL_WORLD_SIZE": str(self.ranks),
            ID_VARIABLE: SimulatedNccl().unique_id().hex(),
            "PYTHONPATH": os.pathsep.join(
                (str(ROOT), *filter(None, (os.environ.get("PYTHONPATH"),)))
            ),
        }
        command = [sys.executable, "-m", "tests.support.laboratory.process_rank", self.job]
        if self.fork:
            started = [_start([*command, "fork"], environment)]
        else:
            started = [
                _start(command, environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
                for rank in range(self.ranks)
            ]
        self._wait(started)
        scenario.unlink()

    def _wait(self, started: list[subprocess.Popen[bytes]]) -> None:
        limit = time.monotonic() + self.seconds
        try:
            while any(one.poll() is None for one in started) and time.monotonic() < limit:
                time.sleep(0.05)
                if self.kill_at_first_exit and any(one.poll() for one in started):
                    limit = min(limit, time.monotonic() + _AFTER_FIRST_EXIT_S)
        finally:
            for one in started:
                one.kill()
                one.wait()


def _start(command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet)


def _hang(verdicts: str, *culprits: int) -> Status:
    return Status(tuple(verdicts.split()), culprits, 4)


_RING_LATE = """ranks = 8
ranks_per_host = 4
steps = 60
compute_ms = 6
bandwidth_gb_s = 20
communicator = pp
call = pp SendRecv 4M bfloat16
late = rank=3 ms=10
"""
_ONE_PAUSE = """ranks = 4
steps = 30
compute_ms = 5
communicator = w
call = w AllReduce 1M float32
late = rank=0 ms=2000 from_step=15 to_step=15
"""
_SMALL_AND_PAUSE = """ranks = 4
steps = 80
compute_ms = 6
communicator = w
call = w AllReduce 2M float32
late = rank=3 ms=5
late = rank=3 ms=1000 from_step=40 to_step=40
"""
_COMPUTE_BEFORE_SEND = """ranks = 8
steps = 50
compute_ms = 4
communicator = pp size=2
communicator = dp size=4 stride=2
call = pp SendRecv 1M bfloat16
call = dp AllReduce 1M float32
late = rank=3 ms=12 call=0
"""
_MANY = (
    "ranks = 4\nsteps = 8\ncompute_ms = 2\n"
    + "".join(f"communicator = g{n} size=2\n" for n in range(40))
    + "".join(f"call = g{n} AllReduce 64K float32\n" for n in range(40))
    + "".join(f"late = rank=1 ms=3 call={n}\n" for n in range(40))
)
_PLAIN = """release = {release}
ranks = 2
steps = 20
communicator = w
call = w AllReduce 1M float32
"""
_DIES = """ranks = 4
steps = 40
give_up_s = 5
communicator = w
call = w AllReduce 1M float32
dies = rank=1 step=30
"""
_WRONG_ROOT = """ranks = 3
steps = 20
give_up_s = 5
communicator = w
call = w AllReduce 256K float32
wrong = rank=2 step=15 function=AllGather
"""

_KINDS = (
    ProcessKind("processes: healthy", job="healthy"),
    ProcessKind("processes: three calls", job="short"),
    ProcessKind(
        "processes: healthy, children of multiprocessing", job="healthy", fork=True,
        never_said=("killed",),
    ),
    ProcessKind("processes: healthy, profile mode", job="healthy", mode="profile"),
    ProcessKind("processes: late rank", job="late", late=(2,)),
    ProcessKind("processes: late rank, profile mode", job="late", mode="profile", may_ranks=(2,)),
    ProcessKind("processes: timeout", job="timeout", status=_hang("never_called", 2)),
    ProcessKind(
        "processes: timeout, exit codes 0", job="timeout_exit_zero",
        status=_hang("never_called", 2),
    ),
    ProcessKind(
        "processes: timeout after a mismatch", job="timeout_mismatch", status=_hang("mismatch", 2)
    ),
    ProcessKind(
        "processes: timeout in groups", job="timeout_in_groups", status=_hang("never_called", 3)
    ),
    ProcessKind(
        "processes: a rank exits with a code", job="exits_early", kill_at_first_exit=True,
        status=_hang("dead never_called", 2),
    ),
    ProcessKind(
        "processes: a rank is killed", job="killed", kill_at_first_exit=True,
        status=_hang("dead never_called", 1),
    ),
    ProcessKind(
        "processes: circle of two communicators", job="circle", seconds=12,
        status=_hang("circle", 0, 1),
    ),
    ProcessKind(
        "processes: circle of three communicators", ranks=3, job="circle_of_three", seconds=12,
        status=_hang("circle", 0, 1, 2),
    ),
    ProcessKind(
        "processes: one call too many", job="one_call_too_many", seconds=12,
        status=_hang("extra_call", 3),
    ),
    ProcessKind(
        "processes: one call left out", job="one_call_left_out", seconds=10,
        status=_hang("mismatch", 1),
    ),
    ProcessKind(
        "processes: hang in a pipeline", machine_noise=False, job="pipeline_hang", seconds=12,
        status=_hang("never_called", 2),
    ),
    ProcessKind("processes: long pause of rank 0", job="long_pause", late=(0,)),
    ProcessKind("processes: late rank in all-to-all", ranks=8, job="late_in_exchanges", late=(3,)),
    ProcessKind("scenario: late rank in a ring", ranks=8, scenario=_RING_LATE, late=(3,)),
    ProcessKind("scenario: one pause", scenario=_ONE_PAUSE, late=(0,)),
    ProcessKind("scenario: small lateness and one outlier", scenario=_SMALL_AND_PAUSE, late=(3,)),
    ProcessKind(
        "scenario: compute before a send", ranks=8, scenario=_COMPUTE_BEFORE_SEND, late=(3,)
    ),
    ProcessKind("scenario: 40 communicators", scenario=_MANY, late=(1,)),
    ProcessKind("scenario: NCCL 2.26", ranks=2, scenario=_PLAIN.format(release="2.26")),
    ProcessKind("scenario: NCCL 2.32", ranks=2, scenario=_PLAIN.format(release="2.32")),
    ProcessKind("scenario: a rank dies", scenario=_DIES, status=_hang("dead never_called", 1)),
    ProcessKind(
        "scenario: a rank calls something else", ranks=3, scenario=_WRONG_ROOT,
        status=_hang("mismatch", 2),
    ),
)  # fmt: skip


def process_kinds() -> dict[str, ProcessKind]:
    """Every kind by its name."""
    return {kind.name: kind for kind in _KINDS}
