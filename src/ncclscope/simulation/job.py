"""Starts the ranks of a scenario and ends them, as a launcher does."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from ncclscope.native import posed_host_path
from ncclscope.simulation.nccl import SimulatedNccl
from ncclscope.simulation.rank import ID_VARIABLE, SCENARIO_VARIABLE
from ncclscope.simulation.scenario import Scenario, scenario_text

_POLL_S = 0.02
_AFTER_A_DEATH_S = 1.0  # the others notice nothing; a launcher ends them
KILLED = 137


def _posed_host(scenario: Scenario, rank: int, origin_ns: int) -> dict[str, str]:
    """Variables that make a process believe it is on another host."""
    if scenario.hosts == 1 and not scenario.host_clocks:
        return {}
    host = scenario.host_of(rank)
    offset_ns = sum(one.offset_ms for one in scenario.host_clocks if one.host == host) * 1e6
    drift_ppm = sum(one.drift_ppm for one in scenario.host_clocks if one.host == host)
    return {
        "NCCLSCOPE_POSED_HOST": f"node{host} {offset_ns:.0f} {drift_ppm} {origin_ns}",
        "LD_PRELOAD": str(posed_host_path()),
    }


def rank_variables(scenario: Scenario, rank: int, origin_ns: int) -> dict[str, str]:
    """What a launcher sets for a rank."""
    local = scenario.ranks_per_host or scenario.ranks
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(scenario.ranks),
        "LOCAL_RANK": str(rank % local),
        "LOCAL_WORLD_SIZE": str(min(local, scenario.ranks)),
        **_posed_host(scenario, rank, origin_ns),
    }


def _wait(ranks: list[subprocess.Popen[bytes]], give_up_s: float) -> bool:
    """Until all have ended; False where somebody has to end them."""
    started = time.monotonic()
    died_at: float | None = None
    while any(rank.poll() is None for rank in ranks):
        time.sleep(_POLL_S)
        now = time.monotonic()
        if died_at is None and any(rank.poll() not in (None, 0) for rank in ranks):
            died_at = now
        if died_at is not None and now - died_at > _AFTER_A_DEATH_S:
            return False
        if give_up_s and now - started > give_up_s:
            return False
    return True


def run_job(scenario: Scenario, environment: Mapping[str, str]) -> int:
    """Runs the scenario to its end; returns 0, or 137 where ranks died or had to be killed."""
    origin_ns = time.monotonic_ns()
    with tempfile.TemporaryDirectory(prefix="ncclscope-") as scratch:
        path = Path(scratch) / "scenario"
        path.write_text(scenario_text(scenario))
        shared = {
            **environment,
            SCENARIO_VARIABLE: str(path),
            ID_VARIABLE: SimulatedNccl().unique_id().hex(),
        }
        command = [sys.executable, "-m", "ncclscope.simulation.rank"]
        ranks = [
            subprocess.Popen(command, env=shared | rank_variables(scenario, rank, origin_ns))
            for rank in range(scenario.ranks)
        ]
        try:
            ended = _wait(ranks, scenario.give_up_s and scenario.give_up_s + expected_s(scenario))
        finally:
            for rank in ranks:
                rank.kill()
            codes = [rank.wait() for rank in ranks]
    return (
        0 if ended and not any(codes) else max((code for code in codes if code > 0), default=KILLED)
    )


def expected_s(scenario: Scenario) -> float:
    """How long a scenario takes where everybody comes: compute and lateness, not the links."""
    late_ms = sum(
        scenario.late_ms(rank, step, call)
        for rank in {one.rank for one in scenario.late}
        for step in range(scenario.steps)
        for call in range(len(scenario.calls))
    )
    return (scenario.steps * scenario.compute_ms + late_ms) / 1e3


def environment_here() -> dict[str, str]:
    """This process's, without what would make a rank of it."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
