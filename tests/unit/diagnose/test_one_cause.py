"""One cause is one finding."""

from pathlib import Path

from tests.support.diagnosis import diagnose_capture
from tests.support.laboratory.kinds import all_kinds


def test_a_communicator_that_becomes_slow_is_one_finding(tmp_path: Path) -> None:
    """There were two, both critical: slower than its peers, and slower than before."""
    name = "fsdp 2 x tp 2, slow link of a tensor parallel group"
    all_kinds()[name].write(tmp_path / "c", 1)
    said = diagnose_capture(tmp_path / "c").findings
    (finding,) = (finding for finding in said if finding.severity != "info")
    assert (finding.family, finding.kind, finding.ranks) == ("slow_link", "group", (0, 1))
    since = finding.evidence[0].facts["at_s"]
    assert f"as communicators like it from {since:.3f} s on; " in finding.sentence
    assert "look for what began then" in finding.advice
