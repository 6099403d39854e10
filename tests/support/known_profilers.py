"""Profilers of known behaviour on the simulated NCCL, and trials that are made up."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

from ncclscope.bench.libraries import find_libraries
from ncclscope.bench.plan import Plan
from ncclscope.bench.profilers.profiler_table import Profiler, known_profilers
from ncclscope.bench.profilers.recording import Records
from ncclscope.bench.profilers.trials import ProfilerTrial, RankCase, TrialCase, TrialSettings
from ncclscope.bench.rank_placement import placement_on_this_host
from ncclscope.bench.session import LaunchOptions
from tests.support.paths import C_SOURCES

RANKS, CALLS, WARM_UP = 2, 30, 2


def build_known_profiler(folder: Path) -> Path:
    """The plugin whose behaviour KNOWN_PROFILER chooses."""
    target = folder / "known.so"
    source = C_SOURCES / "known_profiler.c"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", target, source, "-lpthread"], check=True)
    return target


def known_profiler(plugin: Path, behaviour: str, **variables: str) -> Profiler:
    """The plugin with one behaviour, read as Inspector's logs are."""
    inspector = known_profilers()["inspector"]
    own = {"NCCL_PROFILER_PLUGIN": str(plugin), "KNOWN_PROFILER": behaviour, **variables}
    return replace(inspector, name=behaviour, variables={**inspector.variables, **own}, library="")


def simulated_settings(sizes: tuple[int, ...] = (4096,)) -> TrialSettings:
    """AllReduce and AllGather on two simulated ranks."""
    plan = Plan(
        ("allreduce", "allgather"), sizes, places=("out-of-place",), calls=CALLS, warm_up=WARM_UP
    )
    own = ("NCCL", "RANK", "WORLD_SIZE")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(own)}
    environment["NCCLSCOPE_SIM_DEVICES"] = str(RANKS)
    options = LaunchOptions(
        find_libraries(None, None, True, {}), placement_on_this_host(RANKS),
        {rank: rank for rank in range(RANKS)}, False, 60, environment,
    )  # fmt: skip
    return TrialSettings(plan, options)


def made_case(
    wall_us: float = 100.0,
    cpu_us: float = 50.0,
    operation: str = "allreduce",
    function: str = "AllReduce",
    size_bytes: int = 1024,
    times_ns: tuple[int, ...] = tuple(range(1000, 1010)),
) -> TrialCase:
    """A case of 2 warm-up calls, 10 timed ones and a check, alike on both ranks."""
    own = RankCase(wall_us * 1e3, cpu_us * 1e3, times_ns)
    return TrialCase(operation, function, size_bytes, RANKS, 2, len(times_ns), 1, 1, (own, own))


def made_records(
    times_ns: list[int], sequences: list[int] | None = None, function: str = "AllReduce"
) -> tuple[Records, ...]:
    """Records of both ranks, 1024 bytes each."""
    return tuple(
        Records(
            rank, function, 1024, len(times_ns), tuple(times_ns), tuple(sequences or ()),
            timed=len(times_ns), source="gpu",
        )
        for rank in range(RANKS)
    )  # fmt: skip


def made_trial(profiler: str, kind: str, number: int = 0, **values: object) -> ProfilerTrial:
    """A trial with one case."""
    return replace(ProfilerTrial(profiler, kind, number, (made_case(),)), **values)  # type: ignore[arg-type]
