"""Starts the ranks of a scenario and ends them, as a launcher does."""

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ncclscope.native import fake_host_path
from ncclscope.simulation.nccl import SimulatedNccl
from ncclscope.simulation.rank import ID_VARIABLE, PROGRESS_VARIABLE, SCENARIO_VARIABLE
from ncclscope.simulation.scenario import Scenario
from ncclscope.simulation.scenario_lines import scenario_text

_POLL_S = 0.02
_START_S = 60.0  # the most that ranks may take to start, on a busy machine
_AFTER_A_DEATH_S = 1.0  # then the other ranks are killed, as launchers do it
_KILLED = 137  # exit code


def _fake_host(scenario: Scenario, rank: int, origin_ns: int) -> dict[str, str]:
    """Variables that make a process believe it is on another host."""
    if scenario.hosts == 1 and not scenario.host_clocks:
        return {}
    host = scenario.host_of(rank)
    clocks = [clock for clock in scenario.host_clocks if clock.host == host]
    offset_ns = sum(clock.offset_ms for clock in clocks) * 1e6
    drift_ppm = sum(clock.drift_ppm for clock in clocks)
    return {
        "NCCLSCOPE_POSED_HOST": f"node{host} {offset_ns:.0f} {drift_ppm} {origin_ns}",
        "LD_PRELOAD": str(fake_host_path()),
    }


def rank_variables(scenario: Scenario, rank: int, origin_ns: int) -> dict[str, str]:
    """The variables that a launcher sets for a rank."""
    local = scenario.ranks_per_host or scenario.ranks
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(scenario.ranks),
        "LOCAL_RANK": str(rank % local),
        "LOCAL_WORLD_SIZE": str(min(local, scenario.ranks)),
        **_fake_host(scenario, rank, origin_ns),
    }


def _wait(
    ranks: list[subprocess.Popen[bytes]],
    progress: int,
    give_up_s: float,
    is_over: Callable[[], bool],
) -> None:
    """Waits until all ranks have ended, or until they must be killed: one died, or none progresses.

    Ranks write a byte to `progress` with each step.
    """
    moved_at = time.monotonic() + _START_S
    died_at: float | None = None
    while any(rank.poll() is None for rank in ranks) and not is_over():
        readable, _, _ = select.select([progress], [], [], _POLL_S)
        now = time.monotonic()
        if readable and os.read(progress, 4096):
            moved_at = now
        if died_at is None and any(rank.poll() not in (None, 0) for rank in ranks):
            died_at = now
        if died_at is not None and now - died_at > _AFTER_A_DEATH_S:
            return
        if give_up_s and now - moved_at > give_up_s:
            return


def _end_all(ranks: list[subprocess.Popen[bytes]]) -> int:
    """Kills what still runs; returns the first exit code that is not 0."""
    for rank in ranks:
        rank.kill()
    codes = [rank.wait() for rank in ranks]
    return next((_KILLED if code < 0 else code for code in codes if code), 0)


def run_job(
    scenario: Scenario,
    environment: Mapping[str, str],
    is_over: Callable[[], bool] = lambda: False,
) -> int:
    """Runs the scenario to its end, or until `is_over` returns True; returns the exit code: 0, or
    137 if ranks died or had to be killed.
    """
    origin_ns = time.monotonic_ns()
    progress, progress_writer = os.pipe()
    with tempfile.TemporaryDirectory(prefix="ncclscope-") as scratch:
        path = Path(scratch) / "scenario"
        path.write_text(scenario_text(scenario))
        shared = {
            **environment,
            SCENARIO_VARIABLE: str(path),
            ID_VARIABLE: SimulatedNccl().unique_id().hex(),
            PROGRESS_VARIABLE: str(progress_writer),
        }
        command = [sys.executable, "-m", "ncclscope.simulation.rank"]
        ranks: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(scenario.ranks):
                if is_over():
                    break
                variables = shared | rank_variables(scenario, rank, origin_ns)
                ranks.append(subprocess.Popen(command, env=variables, pass_fds=(progress_writer,)))
            _wait(ranks, progress, scenario.give_up_s, is_over)
        finally:
            code = _end_all(ranks)
            os.close(progress)
            os.close(progress_writer)
    return code


def job_environment() -> dict[str, str]:
    """This process's environment without LD_PRELOAD, which is set for each rank."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
