"""Runs the benchmark once below each profiler: for cost, for times, and ended by SIGKILL.

Every trial has processes of its own. A trial's kind says how calls are made:

    cost   back to back, as the plan says, in every round
    times  held on the GPU until queued, so that a call's CUDA events surround its kernel alone
    kill   as cost, but ranks end by SIGKILL after the last call
"""

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ncclscope.bench.coordinator import RankError
from ncclscope.bench.plan import MOST_HELD, Plan
from ncclscope.bench.profilers.profiler_table import Profiler
from ncclscope.bench.profilers.recording import (
    Recording,
    Records,
    read_recording,
    records_from_json,
)
from ncclscope.bench.results import Result, Session
from ncclscope.bench.session import LaunchOptions, run_session
from ncclscope.errors import UsageError

COST, TIMES, KILL = KINDS = ("cost", "times", "kill")
_TIMED_CALLS = 4 * MOST_HELD
_SEED = 2


@dataclass(frozen=True, slots=True)
class RankCase:
    """What the benchmark itself knows of one case on one rank."""

    wall_ns: float  # of a call, in the loop
    cpu_ns: float  # of a call, all threads of the process
    gpu_ns: tuple[int, ...]  # of each timed call, between its events, less their own time


@dataclass(frozen=True, slots=True)
class TrialCase:
    """One operation and size in one trial."""

    operation: str  # the benchmark's name
    function: str
    size_bytes: int
    ranks: int
    warm_up: int
    calls: int  # timed ones; of groups, their calls
    checks: int
    grouped: int
    by_rank: tuple[RankCase, ...]

    @property
    def made(self) -> int:
        """Calls on each rank, with warm-up and checks."""
        return (self.warm_up + self.calls + self.checks) * self.grouped


@dataclass(frozen=True, slots=True)
class ProfilerTrial:
    """One run of the benchmark below one profiler."""

    profiler: str
    kind: str
    round: int
    cases: tuple[TrialCase, ...] = ()
    records: tuple[Records, ...] = ()
    bytes_written: int = 0
    files: int = 0
    failure: str = ""  # of the benchmark: a rank died, or never got through
    problem: str = ""  # of the profiler's files

    def as_json(self) -> dict[str, Any]:
        """The trial as a JSON object."""
        return asdict(self)


def trial_from_json(content: Mapping[str, Any]) -> ProfilerTrial:
    """The trial that `as_json` gave."""
    cases = tuple(
        TrialCase(
            **{
                **case,
                "by_rank": tuple(
                    RankCase(own["wall_ns"], own["cpu_ns"], tuple(own["gpu_ns"]))
                    for own in case["by_rank"]
                ),
            }
        )
        for case in content["cases"]
    )
    records = tuple(map(records_from_json, content["records"]))
    return ProfilerTrial(**{**content, "cases": cases, "records": records})


@dataclass(slots=True)
class TrialSettings:
    """What is measured, where, and how often."""

    plan: Plan
    options: LaunchOptions
    rounds: int = 3
    output: Path | None = None  # keeps the profilers' files; None: they are removed
    kinds: tuple[str, ...] = KINDS
    sessions: list[Session] = field(default_factory=list)  # of trials that got so far

    def plan_of(self, kind: str) -> Plan:
        """The plan of a kind of trial."""
        if kind == TIMES:
            calls = min(self.plan.calls or _TIMED_CALLS, _TIMED_CALLS)
            return replace(self.plan, held=True, blocking=False, calls=calls, runs=1)
        return replace(self.plan, killed=kind == KILL, runs=1)


def check_output(output: Path) -> None:
    """Raises if a directory has files already: they would be taken for this comparison's.

    Folders may be there: other hosts make theirs, but no file before rank 0's host takes part.
    """
    if output.is_dir() and any(path.is_file() for path in output.rglob("*")):
        hint = "Choose another one with --profiler-output"
        raise UsageError(f"{output} has files already", hint)


def check_comparable(plan: Plan) -> None:
    """Raises for plans whose calls cannot be counted against a profiler's records."""
    for wrong, option in ((plan.graph, "--graph"), (bool(plan.worlds), "--scaling")):
        if wrong:
            message = f"cannot compare profilers with {option}: calls made would not be known"
            raise UsageError(message, f"Leave out {option}")


def order_of_trials(
    profilers: Sequence[Profiler], rounds: int, kinds: Sequence[str], seed: int = _SEED
) -> Iterator[tuple[str, int, Profiler]]:
    """Kind, round and profiler of each trial: random within a round, and alike on all hosts."""
    chance = random.Random(seed)
    for kind in kinds:
        for number in range(rounds if kind == COST else 1):
            for profiler in chance.sample(list(profilers), len(profilers)):
                yield kind, number, profiler


def run_trials(
    profilers: Sequence[Profiler],
    settings: TrialSettings,
    on_trial: Callable[[ProfilerTrial], None],
) -> None:
    """Runs all trials. A profiler that brings down its ranks ends its trial, not the comparison."""
    for kind, number, profiler in order_of_trials(profilers, settings.rounds, settings.kinds):
        on_trial(run_trial(profiler, kind, number, settings))


def run_trial(profiler: Profiler, kind: str, number: int, settings: TrialSettings) -> ProfilerTrial:
    """Runs the benchmark once below a profiler, and reads what that recorded."""
    with output_folder(settings.output, f"{profiler.name}-{kind}-{number}") as output:
        sessions: list[Session] = []
        results: list[Result] = []
        plan = settings.plan_of(kind)
        options = options_below(settings.options, profiler, output)
        failure = ""
        try:
            run_session(plan, options, sessions.append, results.append)
        except RankError as error:
            if not (kind == KILL and _is_complete(plan, options, results)):
                failure = str(error)
        if not options.placement.leads:
            return ProfilerTrial(profiler.name, kind, number)
        settings.sessions += sessions
        recording = Recording()
        if sessions:
            recording = read_recording(profiler, output, sessions[0].devices)
        return ProfilerTrial(
            profiler.name, kind, number, _cases(plan, sessions, results), recording.records,
            recording.bytes_written, recording.files, failure, recording.problem,
        )  # fmt: skip


def _is_complete(plan: Plan, options: LaunchOptions, results: Sequence[Result]) -> bool:
    """Whether all cases were measured before the ranks killed themselves."""
    from ncclscope.bench.plan import cases

    return len(results) == sum(1 for _ in cases(plan, options.placement.ranks))


def placed_in(text: str, output: Path) -> str:
    """A variable or word of a command, with the directory that it writes into."""
    return text.replace("{output}", str(output)).replace("{{", "{").replace("}}", "}")


def own_variables_removed(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables that switch a profiler on."""
    own = ("NCCL_PROFILER_PLUGIN", "NCCLSCOPE_DIR", "NCCLSCOPE_MODE", "NCCLSCOPE_GPU_TIMING")
    return {name: value for name, value in environment.items() if name not in own}


def options_below(options: LaunchOptions, profiler: Profiler, output: Path) -> LaunchOptions:
    """The options that start ranks below a profiler, which writes into `output`."""
    environment = own_variables_removed(options.environment)
    environment |= {name: placed_in(value, output) for name, value in profiler.variables.items()}
    return replace(
        options,
        environment=environment,
        prefix=(*options.prefix, *(placed_in(word, output) for word in profiler.prefix)),
        directory=output if profiler.in_output else options.directory,
    )


@contextmanager
def output_folder(kept: Path | None, name: str) -> Iterator[Path]:
    """A folder for one run's files; it is removed afterwards unless the user keeps them."""
    if kept is None:
        folder = Path(tempfile.mkdtemp(prefix="ncclscope-bench-"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    folder = kept / name.replace(" ", "-")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot create {folder}: {error.strerror}"
        raise UsageError(message, "Choose another directory with --profiler-output") from None
    yield folder


def _cases(
    plan: Plan, sessions: Sequence[Session], results: Sequence[Result]
) -> tuple[TrialCase, ...]:
    # Simulated events add nothing to the work between them, whatever a busy host makes of it.
    beyond = {
        device.rank: 0 if own.simulation else device.beyond_ns
        for own in sessions
        for device in own.devices
    }
    cases = []
    for result in results:
        by_rank = []
        for times in result.ranks:
            calls = sum(loop.calls for loop in times.loops) * result.grouped
            own_ns = (times.gpu_ns - beyond[times.rank]) // result.grouped
            by_rank.append(
                RankCase(
                    sum(loop.host_ns for loop in times.loops) / calls,
                    sum(loop.cpu_ns for loop in times.loops) / calls,
                    tuple(own_ns.tolist()),
                )
            )
        cases.append(
            TrialCase(
                result.case.operation, result.case.spec.function, result.size_bytes,
                result.case.ranks, max(plan.warm_up, 1), result.calls, plan.checks, result.grouped,
                tuple(by_rank),
            )
        )  # fmt: skip
    return tuple(cases)
