"""What first use and damaged directories had shown, tried again."""

import shutil
from pathlib import Path

import pytest

from tests.support.verb_runs import VerbLimits, run_verbs
from tests.support.writer import SyntheticSpec, synthetic


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("first") / "c"
    synthetic(path, SyntheticSpec(processes=2, operations=20))
    return path


def test_diagnose_and_compare_take_a_part_of_the_time(capture: Path) -> None:
    path = str(capture)
    words = [["diagnose", path], ["compare", path, path]]
    whole = run_verbs(words, VerbLimits())
    windows = run_verbs([[*verb, "--last", "1ms"] for verb in words], VerbLimits())
    for run in (*whole, *windows):
        assert run.code == 0, run
        assert not run.problem, run
    assert windows[0].output != whole[0].output


def test_names_and_files_in_the_way_of_a_reader(capture: Path, tmp_path: Path) -> None:
    odd = tmp_path / "c\x1b[31m"
    shutil.copytree(capture, odd, ignore=shutil.ignore_patterns("model", "timeline"))
    (odd / "timeline").write_text("a note of the user's")
    page = ["timeline", str(odd), "--html", str(tmp_path / "page.html")]
    for run in run_verbs([["ls", str(tmp_path)], page], VerbLimits(60)):
        assert run.code == 0, run
        assert not run.problem, run  # no traceback, no control character
    assert (odd / "timeline").read_text() == "a note of the user's"
