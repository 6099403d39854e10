"""What a diagnosis says about itself: where a run is looked at in part."""

from pathlib import Path

import pytest

from ncclscope.analysis import synchronized_instances, time_selection
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.diagnose import diagnosis, rule_context
from ncclscope.diagnose.diagnosis import diagnose
from ncclscope.model.build import open_model
from ncclscope.report.diagnosis import as_json, lines
from tests.support.writer import Straggler, SyntheticSpec, synthetic


def test_a_run_that_is_looked_at_in_part_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synthetic(tmp_path / "c", SyntheticSpec(processes=4, operations=60))
    model = open_model(tmp_path / "c")
    whole = diagnose(model, None)
    assert whole.limits == ()
    monkeypatch.setattr(diagnosis, "MOST_KERNELS", 100)
    monkeypatch.setattr(synchronized_instances, "MOST_ROWS", 100)
    part = diagnose(model, None)
    kernels, sample = part.limits
    assert kernels.startswith("240 kernels: the account of waiting is of all of them; ")
    assert sample == "slow links, sizes and times by a sample: one collective in 3"
    text = "\n".join(lines(model, part, 200))
    assert f"! {sample}; --since and --until choose a part" in text
    assert as_json(model, part)["limits"] == [kernels, sample]


def test_of_a_run_that_is_too_long_the_middle_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Straggler(2, 2_000_000, 0.5)
    synthetic(tmp_path / "c", SyntheticSpec(processes=4, operations=400, straggler=late))
    model = open_model(tmp_path / "c")
    replayed: list[int] = []
    made = rule_context.waiting_of

    def noted(run: Run) -> Waiting | None:
        replayed.append(len(run.operations["event"]))
        return made(run)

    monkeypatch.setattr(rule_context, "waiting_of", noted)
    whole = diagnose(model, None)
    monkeypatch.setattr(time_selection, "MOST_REPLAYED", 800)
    part = diagnose(model, None)
    assert replayed[0] == 1_600
    assert 700 < replayed[1] < 900
    assert part.limits[0].startswith(
        "1,600 operations: findings but hangs, mismatches and degradation are of "
        f"{replayed[1]} in the middle of the run, from "
    )
    for found in (whole, part):
        assert [finding.ranks for finding in found.findings if finding.family == "straggler"] == [
            (2,)
        ]
