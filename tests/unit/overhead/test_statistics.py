"""What rounds of runs say about cost: shares, intervals, noise, and when no verdict is given."""

import random
import re
from pathlib import Path

import pytest

from ncclscope.errors import UsageError
from ncclscope.launch.environment import Settings, event_mask
from ncclscope.nccl.events import MODE_EVENTS
from ncclscope.overhead.advice import advice_lines
from ncclscope.overhead.event_steps import KERNELS, STEPS, partial_masks, steps_of
from ncclscope.overhead.progress import CallProgress
from ncclscope.overhead.statistics import (
    OverheadShares,
    Share,
    order_of_round,
    overhead_shares,
    share_of,
    step_variant,
)
from ncclscope.overhead.summary_text import as_json, lines, overhead_result, verdict_line
from ncclscope.overhead.trials import OverheadTrial, command_words, variables_of


def noisy(cost: float, spread: float, rounds: int, seed: int) -> list[float]:
    chance = random.Random(seed)
    return [cost * (1 + chance.gauss(0, spread)) for _ in range(rounds)]


def rounds_of(ours: float, empty: float, spread: float, rounds: int = 20) -> dict[str, list[float]]:
    return {
        "none": noisy(1.0, spread, rounds, 1),
        "none again": noisy(1.0, spread, rounds, 2),
        "empty": noisy(empty, spread, rounds, 3),
        "ours": noisy(ours, spread, rounds, 4),
    }


def test_shares_are_found_where_they_exceed_the_noise() -> None:
    verdict = overhead_shares(rounds_of(ours=1.155, empty=1.1, spread=0.005))
    assert verdict.ours.low < 0.05 < verdict.ours.high
    assert verdict.nccl
    assert verdict.total
    assert verdict.nccl.low < 0.1 < verdict.nccl.high
    assert verdict.total.low < 0.155 < verdict.total.high
    assert verdict.answer is verdict.total, "what a user pays is against no plugin"
    assert verdict.noise_share < 0.02
    assert verdict.resolved(verdict.ours)


def test_no_verdict_where_noise_is_larger() -> None:
    verdict = overhead_shares(rounds_of(ours=1.005, empty=1.0, spread=0.05))
    assert verdict.noise_share > 0.005
    assert not verdict.resolved(verdict.ours)


def test_an_interval_without_zero_is_not_enough() -> None:
    """Noise that happens to lie on one side must not pass for a cost."""
    noise, ours = Share(0.03, 0.01, 0.06), Share(0.04, 0.02, 0.05)
    assert not OverheadShares(ours, None, None, noise).resolved(ours)


def test_rounds_are_compared_within_themselves() -> None:
    """A machine that slows down while it is measured makes no share."""
    drift = [1 + 0.1 * number for number in range(12)]
    found = share_of([1.02 * cost for cost in drift], drift)
    assert found.share == pytest.approx(0.02)
    assert found.high - found.low < 1e-9


def test_without_runs_without_a_plugin() -> None:
    verdict = overhead_shares({"empty": [1.0] * 5, "empty again": [1.01] * 5, "ours": [1.1] * 5})
    assert verdict.nccl is None
    assert verdict.total is None
    assert verdict.answer is verdict.ours
    assert verdict.noise.share == pytest.approx(0.01)
    assert verdict.resolved(verdict.ours)


def test_orders_differ_and_repeat() -> None:
    names = ["none", "none again", "empty", "ours"]
    orders = [tuple(order_of_round(names, number)) for number in range(30)]
    assert len(set(orders)) > 10
    assert {order[0] for order in orders} == set(names)
    assert orders == [tuple(order_of_round(names, number)) for number in range(30)]


def trial(**changes: object) -> OverheadTrial:
    settings = Settings(Path("/tmp"), mode="trace")
    chosen: dict[str, object] = {"command": ("job",), "settings": settings, **changes}
    plugin = Path("/x/libnccl-profiler-ncclscope.so")
    return OverheadTrial(**{"plugin": plugin, **chosen})  # type: ignore[arg-type]


def stepped_rounds(
    spread: float, kernels: float = 1.3, ours: float = 1.32
) -> dict[str, list[float]]:
    """Rounds of trace mode in which KernelCh costs, and nothing else does."""
    costs = rounds_of(ours=ours, empty=kernels, spread=spread)
    for number, step in enumerate(("calls", "operations", "proxy")):
        costs[step_variant(step)] = noisy(1.0, spread, 20, 10 + number)
    return costs


def test_steps_of_events_add_up_to_the_mask() -> None:
    mask = MODE_EVENTS["trace"]
    assert [step.name for step in steps_of(mask)] == ["calls", "operations", "proxy", "kernels"]
    masks = partial_masks(mask, counted=False)
    assert list(masks) == ["calls", "operations", "proxy"]
    assert masks["proxy"] == mask & ~STEPS[-1].events, "the last step is KernelCh alone"
    assert "calls" not in partial_masks(mask, counted=True), "old releases have no API calls"
    without_kernels = mask & ~STEPS[-1].events
    assert [step.name for step in steps_of(without_kernels)][-1] == "proxy"
    assert list(partial_masks(0x46, counted=False).items()) == [("operations", 6)]


def test_the_share_of_each_step_is_against_the_step_before() -> None:
    steps = ["calls", "operations", "proxy", "kernels"]
    shares = overhead_shares(stepped_rounds(0.002), steps)
    assert [name for name, _ in shares.events] == steps
    by_step = dict(shares.events)
    assert by_step["kernels"].low < 0.3 < by_step["kernels"].high
    assert not any(shares.resolved(by_step[name]) for name in steps[:3])
    window = {name: costs for name, costs in stepped_rounds(0.002).items() if "none" not in name}
    window["empty again"] = window["empty"]
    assert [name for name, _ in overhead_shares(window, steps).events] == steps[1:]


def test_the_answer_comes_first_and_is_against_no_plugin() -> None:
    costs = stepped_rounds(0.002)
    cpu = stepped_rounds(0.002, kernels=3.0, ours=3.1)
    result = overhead_result(trial(), 0xFF4F, costs, cpu)
    text = lines(result)
    names = [line.partition("  ")[0] for line in text]
    assert names.index("no plugin") < names.index("ncclscope (trace)")
    assert names.index("ncclscope (trace)") < names.index("ncclscope (trace) itself")
    answer = text[names.index("ncclscope (trace)")]
    assert re.search(r"\+32\.\d %  \[.*\+210\.\d %  \[", answer), answer
    assert any(line.startswith("  KernelCh (GPU times)") for line in text)
    advice = r"set --gpu-timing sampled, before NCCL 2.28 off: .* takes (29|30)\.\d % more time and (199|200|201) % more CPU"
    assert re.match(advice, text[-2]), text[-2]
    found = as_json(result)
    assert found["shares"]["total"]["share"] == pytest.approx(0.32, abs=0.01)
    assert found["cpu_shares"]["events"][KERNELS]["share"] == pytest.approx(2.0, abs=0.05)


def test_advice_names_what_stands_out() -> None:
    quiet = overhead_shares(stepped_rounds(0.05, kernels=1.0, ours=1.0), ["calls", "kernels"])
    assert advice_lines(trial(), quiet, None) == [
        "nothing to set: no cost stands out from the noise"
    ]
    writing = overhead_shares(rounds_of(ours=1.2, empty=1.0, spread=0.002))
    assert advice_lines(trial(), writing, quiet) == [
        "set --mode profile: writing every event takes 20.0 % more time"
    ]
    assert advice_lines(trial(plugin_is_ours=False), writing, None) == []
    profile = trial(settings=Settings(Path("/tmp"), mode="profile"))
    assert advice_lines(profile, writing, None)[0].startswith("nothing to set")


def test_the_verdict_in_words() -> None:
    clear = rounds_of(ours=1.155, empty=1.1, spread=0.005)
    assert re.fullmatch(
        r"verdict: ncclscope \(trace\) against no plugin: wall time \+1[56]\.\d % "
        r"\[\+\d+\.\d+, \+\d+\.\d+\] %; CPU time \+1.*",
        verdict_line(overhead_result(trial(), 6, clear, clear)),
    )
    unclear = rounds_of(ours=1.0, empty=1.0, spread=0.05)
    verdict = verdict_line(overhead_result(trial(), 6, unclear, clear))
    assert "wall time cannot be told from noise" in verdict
    assert "at most +" in verdict
    assert "CPU time +1" in verdict
    assert "--rounds 80" in verdict


def test_a_window_without_a_plugin_counts_no_calls() -> None:
    costs = {"empty": [1.0] * 5, "empty again": [1.01] * 5, "ours": [1.1] * 5}
    result = overhead_result(trial(seconds=5.0), 0xFF4F, costs, costs)
    text = "\n".join(lines(result))
    assert "against no plugin it is not known" in text
    assert "against an empty plugin" in text
    assert as_json(result)["shares"]["resolved"]


def test_cpu_time_of_ranks_that_are_no_descendants_is_not_known() -> None:
    costs = rounds_of(ours=1.1, empty=1.0, spread=0.005)
    for result in (
        overhead_result(trial(command=("/usr/bin/srun", "job")), 6, costs, costs),
        overhead_result(trial(), 6, costs, {**costs, "none": [0.0] * 20}),
    ):
        assert result.cpu is None
        assert as_json(result)["cpu_shares"] is None
        assert "CPU time is not known" in "\n".join(lines(result))


def test_masks() -> None:
    assert event_mask(Settings(Path("/x"), mode="full")) == 0xFFFF
    assert event_mask(Settings(Path("/x"), gpu_timing="off")) == 0x7F0F
    assert event_mask(Settings(Path("/x"), mode="profile")) == 0x7F07
    assert event_mask(Settings(Path("/x"), mode="profile", gpu_timing="kernel")) == 0x7746
    assert event_mask(Settings(Path("/x"), events="0x2")) == 0x2
    assert event_mask(Settings(Path("/x"), events="0x6")) == 6
    assert event_mask(Settings(Path("/x"), events="0x42", gpu_timing="sampled")) & 0x40
    with pytest.raises(UsageError):
        event_mask(Settings(Path("/x"), events="six"))


def test_variables_of_variants(tmp_path: Path) -> None:
    assert variables_of(trial(), "none again", tmp_path) == {"NCCL_PROFILER_PLUGIN": "none"}
    empty = variables_of(trial(), "empty", tmp_path)
    assert empty["NCCLSCOPE_EMPTY_EVENTS"] == "0xff4f"
    assert empty["NCCLSCOPE_EMPTY_COUNTS"] == "", "counting costs, if little"
    calls = variables_of(trial(), step_variant("calls"), tmp_path)
    assert calls["NCCLSCOPE_EMPTY_EVENTS"] == "0xf00"
    window = variables_of(trial(seconds=1.0), "empty again", tmp_path)
    assert window["NCCLSCOPE_EMPTY_COUNTS"] == str(tmp_path / "counts")
    ours = variables_of(trial(), "ours", tmp_path)
    assert ours["NCCLSCOPE_MODE"] == "trace"
    assert ours["NCCLSCOPE_DIR"] == str(tmp_path / "capture")


def test_rates_come_from_the_steady_part() -> None:
    counts = CallProgress()
    for second in range(11):
        counts.add("a", 100.0 + second, 10 + 50 * second if second > 2 else 10 + second)
        counts.add("b", 100.5 + second, 7 + 30 * second)
    assert counts.began == 100.5
    assert counts.rate(5.0) == pytest.approx((50 + 30) / 2)
    assert counts.rate(20.0) is None
    assert CallProgress().rate(0) is None
    waiting = CallProgress()
    waiting.add("a", 1.0, 5)
    waiting.add("b", 1.0, 0)
    assert waiting.began is None, "a process that has not called yet"


def test_commands() -> None:
    assert command_words(["--", "a", "--", "b"]) == ("a", "--", "b")
    with pytest.raises(UsageError, match="nothing to run"):
        command_words(["--"])
