"""What rounds of runs say about cost: shares, intervals, noise, and when no verdict is given."""

import random
import re
from pathlib import Path

import pytest

from ncclscope.errors import UsageError
from ncclscope.launch.environment import Settings, event_mask
from ncclscope.overhead.progress import CallProgress
from ncclscope.overhead.statistics import (
    OverheadShares,
    Share,
    order_of_round,
    overhead_shares,
    share_of,
)
from ncclscope.overhead.summary_text import as_json, lines, verdict_line
from ncclscope.overhead.trials import Trial, command_words, variables_of


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
    assert verdict.both
    assert verdict.nccl.low < 0.1 < verdict.nccl.high
    assert verdict.both.low < 0.155 < verdict.both.high
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
    assert verdict.both is None
    assert verdict.noise.share == pytest.approx(0.01)
    assert verdict.resolved(verdict.ours)


def test_orders_differ_and_repeat() -> None:
    names = ["none", "none again", "empty", "ours"]
    orders = [tuple(order_of_round(names, number)) for number in range(30)]
    assert len(set(orders)) > 10
    assert {order[0] for order in orders} == set(names)
    assert orders == [tuple(order_of_round(names, number)) for number in range(30)]


def trial(**changes: object) -> Trial:
    settings = Settings(Path("/tmp"), mode="trace")
    chosen: dict[str, object] = {"command": ("job",), "settings": settings, **changes}
    plugin = Path("/x/libnccl-profiler-ncclscope.so")
    return Trial(**{"plugin": plugin, **chosen})  # type: ignore[arg-type]


def test_the_verdict_in_words() -> None:
    clear = overhead_shares(rounds_of(ours=1.155, empty=1.1, spread=0.005))
    assert re.fullmatch(
        r"verdict: ncclscope \(trace\) costs [45]\.\d %  *\[\+\d\.\d+, \+\d\.\d+\] %",
        verdict_line(trial(), clear, 20),
    )
    unclear = overhead_shares(rounds_of(ours=1.0, empty=1.0, spread=0.05))
    said = verdict_line(trial(), unclear, 20)
    assert said.startswith("verdict: none.")
    assert "cannot be told from noise" in said
    assert "at most +" in said
    assert "--rounds 80" in said
    window = overhead_shares({"empty": [1.0] * 5, "empty again": [1.01] * 5, "ours": [1.1] * 5})
    costs = {"empty": [1.0] * 5, "empty again": [1.01] * 5, "ours": [1.1] * 5}
    text = "\n".join(lines(trial(seconds=5.0), 0xFF4F, costs, window))
    assert "NCCL's own share is not known" in text
    assert as_json(trial(), 0xFF4F, costs, window)["shares"]["resolved"]


def test_masks() -> None:
    assert event_mask(Settings(Path("/x"), mode="full")) == 0xFFFF
    assert event_mask(Settings(Path("/x"), gpu_timing="off")) == 0x7F0F
    assert event_mask(Settings(Path("/x"), mode="profile")) == 0x7F07
    assert event_mask(Settings(Path("/x"), mode="profile", gpu_timing="kernel")) == 0x7746
    assert event_mask(Settings(Path("/x"), events="0x2")) == 0x2
    assert event_mask(Settings(Path("/x"), events="0x6")) == 6
    with pytest.raises(UsageError):
        event_mask(Settings(Path("/x"), events="six"))


def test_variables_of_variants(tmp_path: Path) -> None:
    assert variables_of(trial(), "none again", tmp_path) == {"NCCL_PROFILER_PLUGIN": "none"}
    empty = variables_of(trial(), "empty", tmp_path)
    assert empty["NCCLSCOPE_EMPTY_EVENTS"] == "0xff4f"
    assert empty["NCCLSCOPE_EMPTY_COUNTS"] == "", "counting costs, if little"
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
