"""Jobs against each other: written ones, of which the truth is known."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ncclscope.analysis import run_intervals
from ncclscope.analysis.run_intervals import difference, half_width, half_width_of_ratio
from ncclscope.cli import main
from ncclscope.diagnose.comparison import Comparison, compare
from ncclscope.diagnose.comparison_verdict import Measure, bounds_loss, verdict_of, why_unresolved
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


SOME_LONG_ROUNDS = (Late(2, 45, 15, 15), Late(2, 45, 35, 35))  # 90 of 350 ms
AFTER_THE_LAST_ROUND = (Late(2, 45, 59, 59, call=1),)
A_LITTLE_IN_EACH = tuple(Late(rank, 0.7) for rank in range(4))  # 12 %


@pytest.mark.parametrize("late", [SOME_LONG_ROUNDS, AFTER_THE_LAST_ROUND, A_LITTLE_IN_EACH])
def test_a_loss_that_one_run_of_each_cannot_tell_is_not_the_same(
    write: Write, tmp_path: Path, late: tuple[Late, ...]
) -> None:
    # The call that marks rounds is the first of a step.
    job = replace(JOB, calls=JOB.calls[::-1])
    a, b = write("a", job), write("b", replace(job, late=late), 2)
    comparison, back = compare([a], [b]), compare([b], [a])
    assert (comparison.verdict, comparison.bounds_loss) == ("unresolved", False)
    assert (back.verdict, back.bounds_loss) == ("unresolved", True), "B lost nothing"
    assert " % longer" in comparison.reason
    assert " % less" in back.reason
    assert "compare several runs of each: compare a1 a2 a3 -- b1 b2 b3" in text_of(comparison)
    assert verdicts(comparison)["run"] == verdicts(back)["run"] == "unresolved"
    assert main(["compare", "--gate", str(tmp_path / "a"), str(tmp_path / "b")]) == 5
    assert main(["compare", "--gate", str(tmp_path / "b"), str(tmp_path / "a")]) == 0


def test_several_runs_tell_such_a_loss(write: Write) -> None:
    a = [write(f"a{seed}", seed=seed) for seed in range(3)]
    late = replace(JOB, late=tuple(replace(pause, ms=90) for pause in SOME_LONG_ROUNDS))
    comparison = compare(a, [write(f"b{seed}", late, seed) for seed in range(3, 6)])
    assert (comparison.verdict, comparison.bounds_loss) == ("slower", False)
    assert verdicts(comparison)["round"] in ("same", "unresolved")
    assert verdicts(comparison)["run"] == "slower"


def test_equal_runs_with_unlike_phases_are_the_same(write: Write) -> None:
    """The typical round is that of one of the phases, by chance of one or of the other."""
    phases = tuple(Late(rank, 6, 30) for rank in range(4))
    a, b = (write(name, replace(JOB, late=phases), seed) for name, seed in (("a", 1), ("b", 2)))
    comparison = compare([a], [b])
    assert (comparison.verdict, comparison.reason) == ("same", "")
    assert comparison.bounds_loss
    assert "is as fast as A, as far as one run of each can tell: after its" in text_of(comparison)
    assert as_json(comparison, ["a"], ["b"])["bounds_loss"] is True


def test_runs_of_unlike_length_are_compared_by_round(write: Write) -> None:
    a, longer = write("a"), write("b", replace(JOB, steps=90), 2)
    run = next(m for m in compare([a], [longer]).measures if m.name == "run")
    assert run.change == pytest.approx(1, abs=0.03)
    assert compare([a], [longer]).verdict == "same"


def measures(run: float, half: float, mean: float = 1.0, **verdicts: str) -> list[Measure]:
    changes = {"round": (1.0, 0.0), "mean round": (mean, 0.0), "run": (run, half)}
    verdicts = {"run": "same" if half < 0.05 else "unresolved"} | verdicts
    return [
        Measure(name, (1.0,), (change,), change, change - open_, change + open_,
                verdicts.get(name.replace(" ", "_"), "same"))
        for name, (change, open_) in changes.items()
    ]  # fmt: skip


def test_what_all_measures_say_together() -> None:
    assert verdict_of(measures(1.0, 0.02)) == "same"
    # The mean of all rounds shows a loss that the run's other parts made up for.
    assert verdict_of(measures(1.0, 0.02, mean=1.08)) == "unresolved"
    assert "in the mean 8 % longer" in why_unresolved(measures(1.0, 0.02, mean=1.08), False)
    assert verdict_of(measures(1.0, 0.20)) == "unresolved"
    assert "of 25 % is left open" in why_unresolved(measures(1.0, 0.20), False)
    assert "more runs of each" in why_unresolved(measures(1.0, 0.20), True)
    # Typical rounds are faster, but the run may have lost time.
    assert verdict_of(measures(1.0, 0.02, round="faster")) == "faster"
    assert verdict_of(measures(1.2, 0.02, round="faster")) == "unresolved"
    opposite = measures(1.3, 0.02, mean=1.3, round="faster", mean_round="slower")
    assert verdict_of(opposite) == "unresolved"
    assert "opposite ways" in why_unresolved(opposite, False)
    assert not bounds_loss(opposite)
    # Without rounds nothing shows what the job takes.
    wire = [Measure("wire", (1.0,), (1.0,), 1.0, 0.99, 1.01, "same")]
    assert (verdict_of(wire), bounds_loss(wire)) == ("unresolved", False)
    assert "17 calls of one kind" in why_unresolved(wire, False)
    assert verdict_of([replace(wire[0], verdict="slower")]) == "slower"


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


def test_parts_at_one_place_are_compared_with_each_other() -> None:
    growing = np.linspace(1e6, 8e6, 32)
    noise = np.random.default_rng(1).normal(1, 0.01, (2, 32))
    a, b = growing * noise[0], growing * noise[1]
    assert half_width_of_ratio(a, b, are_pairs=True) < 0.02
    assert half_width_of_ratio(a, b, are_pairs=False) > 0.2
    assert half_width_of_ratio(a, b[:20], are_pairs=False) > 0.2
    # One long part of either run is not what the other parts show.
    b[20] *= 8
    assert half_width_of_ratio(a, b, are_pairs=True) > 0.2
    back = half_width_of_ratio(b, a, are_pairs=True)
    assert back == pytest.approx(half_width_of_ratio(a, b, are_pairs=True))
