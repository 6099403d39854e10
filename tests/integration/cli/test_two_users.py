"""Two users on one capture, of which one may not write into it: both get the right answer."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.writer import ALL_KINDS_OF_WORK, SyntheticSpec, synthetic

AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
NOT_SAVED = "was not saved: this user may not write there. Each command makes it again"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
def capture() -> Iterator[Path]:
    """A capture that all may read, in a directory that all may enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name, "capture")
        groups = ((0, 1, 2, 3), (4, 5, 6, 7), tuple(range(8)))
        spec = SyntheticSpec(
            processes=8, operations=300, ranks_per_node=4, communicators=groups,
            mix=ALL_KINDS_OF_WORK,
        )  # fmt: skip
        synthetic(folder, spec)
        for path in (Path(name), *Path(name).rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        Path(name, "files").mkdir()
        Path(name, "files").chmod(0o777)
        yield folder


def both(*words: str | Path) -> list[tuple[str, str]]:
    """What a verb prints for each user, started at the same time: stdout and stderr."""
    command = [sys.executable, "-m", "ncclscope", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    jobs = [
        subprocess.Popen([*who, *command], **pipes)  # type: ignore[call-overload]
        for who in ([], AS_NOBODY)
    ]
    answers = [job.communicate(timeout=300) for job in jobs]
    if "No module named" in answers[1][1]:
        pytest.skip("this checkout is private, too")
    assert [job.returncode for job in jobs] == [0, 0], answers
    return answers


def test_answers_are_equal(capture: Path) -> None:
    for verb in ("report", "diagnose"):  # without a saved model, then with one that is private
        owner, other = both(verb, "--json", capture)
        assert owner[0] == other[0] != ""
        assert owner[1] == ""
        assert NOT_SAVED in other[1]
        assert "Traceback" not in other[1]
        assert (capture / "model" / "manifest.json").exists()
    assert {path.stat().st_uid for path in capture.rglob("*")} == {0}


def test_timelines_are_equal(capture: Path) -> None:
    files = capture.parent / "files"
    owner, other = both("timeline", capture, "--html", files / "timeline.html")
    assert NOT_SAVED not in owner[1]
    assert NOT_SAVED in other[1]
    assert (files / "timeline.html").stat().st_size > 0


def test_a_saved_model_that_others_may_read_is_read(capture: Path) -> None:
    both("report", "--json", capture)
    for path in (capture / "model", *(capture / "model").iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    owner, other = both("report", "--json", capture)
    assert owner == other
