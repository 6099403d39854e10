"""ncclsee, CoMMA and Nsight Systems as far as it goes without them.

Programs and plugins that write files as theirs go through whole trials: they are switched on by
the table's variables, options and directories, write where those say, and are read as theirs. The
real ones have not been run.
"""

from dataclasses import replace

import pytest

from ncclscope.bench.profilers.comparison import ProfilerComparison, compare
from ncclscope.bench.profilers.profiler_table import Profiler
from ncclscope.bench.profilers.selection import select_profilers
from ncclscope.bench.profilers.trials import KILL, TIMES, ProfilerTrial, TrialSettings, run_trial
from tests.support import known_nsys
from tests.support.known_profilers import (
    CALLS,
    RANKS,
    WARM_UP,
    build_known_profiler,
    simulated_settings,
)
from tests.support.paths import ROOT

MADE = CALLS + WARM_UP + 1  # of an operation on one rank, with the check
ALL = 2 * RANKS * MADE
EXPORT_S = 3  # longer than ranks have for their end


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Profiler], list[ProfilerTrial]]:
    """Each profiler with times, and ended by SIGKILL."""
    folder = tmp_path_factory.mktemp("others")
    plugin, settings = build_known_profiler(folder), simulated_settings()
    environment = dict(settings.options.environment)
    programs = known_nsys.install(folder / "programs")
    environment |= {
        "PATH": f"{programs}:{environment['PATH']}",
        "PYTHONPATH": str(ROOT),
        "KNOWN_NSYS_PLUGIN": str(plugin),
    }
    words = [f"{name}={plugin},KNOWN_FORMAT={name}" for name in ("ncclsee", "comma")]
    selection = select_profilers([*words, "nsys,KNOWN_NSYS_EXPORT_S=0"], environment)
    assert selection.absent == {}
    profilers = list(selection.profilers[2:])
    options = replace(settings.options, environment=environment)
    own = TrialSettings(settings.plan, options)
    finished = [run_trial(profiler, TIMES, 0, own) for profiler in profilers]
    slow = {"KNOWN_NSYS_EXPORT_S": str(EXPORT_S)}
    finished += [
        run_trial(replace(profiler, variables={**profiler.variables, **slow}), KILL, 0, own)
        for profiler in profilers
    ]
    return profilers, finished


@pytest.fixture(scope="module")
def comparison(trials: tuple[list[Profiler], list[ProfilerTrial]]) -> ProfilerComparison:
    profilers, finished = trials
    assert [trial.failure + trial.problem for trial in finished] == [""] * len(finished)
    return compare(finished, profilers)


@pytest.mark.parametrize("name", ["ncclsee", "comma", "nsys"])
def test_every_call_is_found_in_its_files(name: str, comparison: ProfilerComparison) -> None:
    assert comparison.coverage_of(name) == (ALL, ALL)
    (loss,) = [row for row in comparison.loss if row.profiler == name]
    assert loss.bytes_per_call
    assert loss.files == (2 * RANKS if name == "nsys" else RANKS)


@pytest.mark.parametrize(("name", "remark"), [("comma", "network transfers' times"), ("nsys", "")])
def test_times_are_those_of_the_same_calls(
    name: str, remark: str, comparison: ProfilerComparison
) -> None:
    rows = [row for row in comparison.times if row.profiler == name]
    assert [row.operation for row in rows] == ["allreduce", "allgather"]
    for row in rows:
        assert (row.calls, row.remark) == (RANKS * CALLS, remark)
        assert row.ratio is not None
        assert row.ratio.value == pytest.approx(1, abs=0.01)


def test_ncclsee_has_means_alone(
    trials: tuple[list[Profiler], list[ProfilerTrial]], comparison: ProfilerComparison
) -> None:
    (trial,) = [own for own in trials[1] if (own.profiler, own.kind) == ("ncclsee", TIMES)]
    for records in trial.records:
        moved = {"AllReduce": 2 * 4096, "AllGather": 4096}[records.function]
        assert (records.count, records.size_bytes) == (MADE, moved)
        assert max(records.durations_ns) - min(records.durations_ns) <= 1
    remarks = [row.remark for row in comparison.times if row.profiler == "ncclsee"]
    assert remarks == ["of other sizes, or of ranges of sizes", "the host's times"]


def test_what_a_kill_takes_of_files_in_the_end_of_lines_and_of_a_program_around_the_rank(
    comparison: ProfilerComparison,
) -> None:
    """A program has its time for what it writes when the rank is gone."""
    recorded = {row.profiler: row.killed_recorded for row in comparison.loss}
    assert {row.killed_made for row in comparison.loss} == {ALL}
    assert recorded == {"ncclsee": 0, "comma": ALL, "nsys": ALL}
