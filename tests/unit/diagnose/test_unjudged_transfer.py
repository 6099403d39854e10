"""Runs that are mostly transfer, where nothing tells how fast the links could be."""

from pathlib import Path

import pytest

from ncclscope.analysis.baseline import Baseline, Expected
from ncclscope.diagnose.diagnosis import diagnose
from ncclscope.diagnose.finding import Finding
from ncclscope.model.build import open_model
from tests.support.diagnosis import diagnose_capture
from tests.support.laboratory.kinds import all_kinds

KINDS = all_kinds()
SLOW = "link slow from the first step on"


def remarks(capture: Path, name: str) -> list[Finding]:
    KINDS[name].write(capture, 1)
    said = diagnose_capture(capture).findings
    assert all(finding.severity == "info" for finding in said)
    return [finding for finding in said if finding.kind == "not judged"]


@pytest.mark.parametrize("name", ["ddp 8 on 2 hosts, 25 steps", "fsdp 6 on 3 hosts"])
def test_a_link_that_was_always_slow_is_a_remark_and_mode_full_names_it(
    tmp_path: Path, name: str
) -> None:
    (remark,) = remarks(tmp_path / "c", f"{name}, {SLOW}")
    assert "of the critical path is transfer, most of it All" in remark.sentence
    assert "GB/s of bus bandwidth" in remark.sentence
    assert remark.advice.startswith("record in mode full")
    assert remark.lost_share == 0  # nobody knows


def test_within_a_node_no_mode_shows_links(tmp_path: Path) -> None:
    (remark,) = remarks(tmp_path / "c", f"fsdp 6, {SLOW}")
    assert "mode full" not in remark.advice
    assert "--baseline" in remark.advice


@pytest.mark.parametrize("name", ["ddp 8 on 2 hosts, 25 steps", "fsdp 6"])
def test_a_run_that_mostly_computes_gets_no_remark(tmp_path: Path, name: str) -> None:
    assert not remarks(tmp_path / "c", f"{name}, healthy")


@pytest.mark.parametrize("function", ["allgather", "broadcast"])
def test_a_baseline_judges_bandwidth_where_it_has_the_case(tmp_path: Path, function: str) -> None:
    (remark,) = remarks(tmp_path / "c", f"fsdp 6, {SLOW}")
    case = Expected(function, remark.evidence[0].facts["size_bytes"], 6.0)
    baseline = Baseline(tmp_path / "bench.json", True, (case,))
    said = diagnose(open_model(tmp_path / "c"), None, baseline).findings
    unjudged = any(finding.kind == "not judged" for finding in said)
    assert unjudged == (function == "broadcast")
