"""Jobs against each other: written ones, of which the truth is known."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ncclscope.analysis import run_intervals
from ncclscope.analysis.run_intervals import difference, half_width
from ncclscope.cli import main
from ncclscope.diagnose.comparison import Comparison, compare
from ncclscope.model.build import open_model
from ncclscope.model.model import Model
from ncclscope.report.comparison import as_json, lines
from ncclscope.simulation.scenario import Call, Communicators, Late, Scenario
from tests.support.writer.noise import noise_of_transcripts
from tests.support.writer.scenario import write_scenario

JOB = Scenario(
    ranks=4, steps=60, compute_ms=5, communicators=(Communicators("w"),),
    calls=(Call("w", "AllReduce", 1 << 20), Call("w", "AllGather", 1 << 18)),
)  # fmt: skip
Write = Callable[..., Model]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    noise = noise_of_transcripts()

    def written(name: str, scenario: Scenario = JOB, seed: int = 1) -> Model:
        write_scenario(tmp_path / name, scenario, seed, noise)
        return open_model(tmp_path / name)

    return written


def verdicts(comparison: Comparison) -> dict[str, str]:
    return {measure.name: measure.verdict for measure in comparison.measures}


def text_of(comparison: Comparison) -> str:
    return " ".join(" ".join(lines(comparison, ["a"], ["b"], 100)).split())


def test_equal_jobs_are_equal_in_both_directions(write: Write) -> None:
    models = [write(f"c{seed}", seed=seed) for seed in range(4)]
    for a in models:
        for b in models:
            comparison = compare([a], [b])
            assert comparison.verdict in ("same", "unresolved")
            assert {change.verdict for change in comparison.changes} <= {"same", "unresolved"}
            back = compare([b], [a])
            assert verdicts(back) == verdicts(comparison)
            assert back.measures[0].change == pytest.approx(1 / comparison.measures[0].change)
            assert back.measures[0].low == pytest.approx(1 / comparison.measures[0].high)


@pytest.mark.parametrize("count", [1, 8, 9, 33, 300])
def test_half_widths_are_those_of_resampled_medians(count: int) -> None:
    values = np.random.default_rng(count).lognormal(1.0, 0.3, count)
    medians = np.median(values[run_intervals._resamples(count)], axis=1)
    low, high = np.percentile(medians, (0.5, 99.5))
    assert half_width(values) == (high - low) / 2


def test_one_run_of_each_says_what_it_cannot_tell(write: Write) -> None:
    comparison = compare([write("a")], [write("b", seed=2)])
    assert not comparison.knows_spread
    assert "how much equal runs differ is not known" in text_of(comparison)
    assert as_json(comparison, ["a"], ["b"])["between_runs"] is False
    for width, is_shown in ((60, False), (160, True)):  # a legend of what is shown
        shown = list(lines(comparison, ["a"], ["b"], width))
        heading = next(line for line in shown if line.startswith("communicator"))
        assert ("time" in heading.split()) == is_shown
        assert ("share of all calls' time" in " ".join(shown)) == is_shown


@pytest.mark.parametrize("late_ms", [20.0, 5.0])
def test_a_late_rank_makes_a_job_slower(write: Write, late_ms: float) -> None:
    a, b = write("a"), write("b", replace(JOB, late=(Late(2, late_ms),)), 2)
    comparison = compare([a], [b])
    assert comparison.verdict == "slower"
    found = verdicts(comparison)
    assert (found["round"], found["waiting"]) == ("slower", "slower")
    assert found["wire"] in ("same", "unresolved"), "links are as they were"
    assert compare([b], [a]).verdict == "faster"
    assert text_of(comparison).startswith("A: a (a simulation) B: b (a simulation) B is slower")
    assert comparison.origins[0].name == "rank 2", "waiting began there"
    assert "because of rank 2" in text_of(comparison)
    assert as_json(comparison, ["a"], ["b"])["origins"][0]["name"] == "rank 2"


def test_one_pause_makes_a_run_slower_and_rounds_not(write: Write) -> None:
    b = write("b", replace(JOB, late=(Late(0, 2000, 30, 30),)), 2)
    found = compare([write("a")], [b])
    assert found.verdict == "slower"
    assert verdicts(found)["round"] != "slower"
    assert verdicts(found)["mean round"] == "slower"
    assert "rounds take in the mean, though not typically" in text_of(found)


def test_half_the_bandwidth_is_found_on_the_wire(write: Write) -> None:
    slow = replace(JOB, bandwidth_gb_s=1.0, calls=JOB.calls[:1])
    comparison = compare([write("a")], [write("c", slow, 5)])
    assert verdicts(comparison)["wire"] == "slower"
    assert comparison.ratio is not None
    assert 1.7 < comparison.ratio < 2.1
    assert [key[:2] for key, _ in comparison.vanished] == [("w", "AllGather")]
    assert comparison.changes[0].verdict == "slower"
    answer = json.loads(json.dumps(as_json(comparison, ["a"], ["c"]), allow_nan=False))
    assert answer["changes"][0]["verdict"] == "slower"
    assert answer["measures"][-1]["name"] == "wire"
    assert "only in A" in text_of(comparison)


def test_several_runs_give_an_interval_between_runs(write: Write) -> None:
    a = [write(f"a{seed}", seed=seed) for seed in range(3)]
    b = [write(f"b{seed}", seed=seed) for seed in range(5, 7)]
    equal = compare(a, b)
    assert equal.knows_spread
    assert equal.verdict in ("same", "unresolved")
    slow = replace(JOB, compute_ms=6)
    slower = [write(f"c{seed}", slow, seed) for seed in range(8, 11)]
    comparison = compare(a, slower)
    assert verdicts(comparison)["round"] == "slower", "12 % are beyond what equal runs differ by"
    assert comparison.runs == (3, 3)
    assert "from how much 3 and 3 runs of one job differ" in text_of(comparison)


def test_jobs_that_were_recorded_in_different_modes_are_not_compared(
    write: Write, tmp_path: Path
) -> None:
    write("a")
    model = write("b", replace(JOB, late=(Late(2, 20),)), 2)
    model = replace(model, processes=[replace(row, mode="full") for row in model.processes])
    comparison = compare([open_model(tmp_path / "a")], [model])
    assert comparison.verdict == "not comparable"
    assert "mode: A trace, B full" in comparison.reason
    assert set(verdicts(comparison).values()) == {"not judged"}
    assert {change.verdict for change in comparison.changes} == {"not judged"}


def test_what_was_not_compared_says_why(write: Write) -> None:
    a = write("a")
    few = compare([a], [write("few", replace(JOB, steps=1))])
    assert (few.verdict, few.reason != "") == ("unresolved", True)
    assert "not resolved: too few calls" in text_of(few)
    other = replace(JOB, calls=(Call("w", "AllReduce", 4096),))
    assert "A and B have no call in common" in compare([a], [write("other", other)]).reason
    none = compare([a], [write("none", replace(JOB, steps=0))])
    assert none.reason == "B has no times of single calls: record in mode trace"


def test_a_gate(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write("a"), write("a2", seed=2), write("b", replace(JOB, late=(Late(2, 20),)), 3)
    write("none", replace(JOB, steps=0))

    def gate(*names: str) -> int:
        words = [name if name == "--" else str(tmp_path / name) for name in names]
        return main(["compare", "--gate", *words])

    assert gate("a", "a2") == 0
    assert gate("a", "b") == 3
    assert gate("b", "a") == 0
    assert gate("a", "none") == 5, "a gate that compared nothing does not pass"
    assert gate("a", "a2", "--", "b") == 3
    capsys.readouterr()
    assert gate("a", "a2", "b") == 2
    assert "which of 3 captures are A and which are B" in capsys.readouterr().err


def test_intervals_between_runs() -> None:
    between = difference([1.00, 1.02, 0.98], [1.20, 1.22], 0.0, 9.0)
    assert between.value == pytest.approx(0.21)
    assert 0.05 < between.low < 0.15
    one = difference([1.0], [1.05], 0.03, 0.04)
    assert (one.low, one.high) == pytest.approx((0.0, 0.10))
    # Runs that agree by chance do not make an interval of nothing.
    lucky = difference([1.0, 1.0], [1.01, 1.01], 0.0, 0.0)
    assert lucky.low < 0


def test_the_interval_of_a_median_knows_that_neighbours_resemble_each_other() -> None:
    generator = np.random.default_rng(1)
    independent = generator.normal(size=512)
    slow = np.repeat(independent[:32], 16)
    assert half_width(slow) > 2 * half_width(independent)
