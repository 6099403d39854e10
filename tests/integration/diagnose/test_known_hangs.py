"""Jobs whose truth is known, as they end in life: by timeouts, exceptions, aborts and _exit."""

import gzip
import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import ncclscope
from ncclscope.capture.housekeeping import process_folders
from ncclscope.diagnose.hang.judge import judge
from ncclscope.report.status import as_json
from ncclscope.snapshot.process import read_snapshots
from tests.support.diagnosis import diagnose_capture
from tests.support.hang_jobs import JOBS
from tests.support.paths import DATA, ROOT
from tests.support.player import ncclscope as run_ncclscope
from tests.support.player import play_job, player, recording, transcript_files
from tests.support.waiting import eventually

_AT_ONCE = 6  # jobs of four ranks


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """All jobs, some side by side: most of their time they wait."""
    directory = tmp_path_factory.mktemp("known")
    names = list(JOBS)
    for first in range(0, len(names), _AT_ONCE):
        _record(names[first : first + _AT_ONCE], directory)
    return {name: directory / name for name in JOBS}


def _record(names: list[str], directory: Path) -> None:
    with ExitStack() as stack:
        for name in names:
            command = [sys.executable, "-m", "ncclscope", "run", "-o", str(directory / name), "--"]
            command += [sys.executable, "-m", "tests.support.hang_jobs", name]
            log = stack.enter_context((directory / f"{name}.log").open("w"))
            job = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
            stack.enter_context(job)  # waits for it


def status(capture: Path) -> tuple[int, dict[str, Any]]:
    printed = run_ncclscope("status", "--json", capture)
    return printed.returncode, json.loads(printed.stdout)


@pytest.mark.parametrize("name", JOBS)
def test_status_names_what_is_true(name: str, captures: dict[str, Path]) -> None:
    truth = JOBS[name]
    code, answer = status(captures[name])
    causes = [v for v in answer["communicators"] if v["hung"] and not v["follows_from"]]
    if not truth.verdict:
        assert (code, causes) == (0, [])
        return
    assert code == 4
    # Who is silent for 5 s before the others is dead: that depends on the machine.
    verdicts = {v["verdict"] for v in causes} - ({"dead"} if name == "early_exit" else set())
    assert verdicts <= {truth.verdict}, [v["line"] for v in causes]
    assert {tuple(v["culprits"]) for v in causes} == {truth.culprits}


@pytest.mark.parametrize("name", [name for name, truth in JOBS.items() if truth.verdict])
def test_diagnose_says_the_same(name: str, captures: dict[str, Path]) -> None:
    first = diagnose_capture(captures[name]).findings[0]
    family = "mismatch" if name == "mismatch" else "hang"
    assert (first.family, first.ranks) == (family, JOBS[name].culprits)
    if name in ("circle", "crossed", "extra_call", "timeout", "exception", "abort"):
        assert "outside NCCL" not in first.advice


def _with_words(words: str, text: str) -> str:
    """The text if it has the words, else nothing."""
    return text if words in text else ""


def test_nobody_is_said_to_be_killed(captures: dict[str, Path]) -> None:
    for verb in ("report", "ls"):
        # `ls` takes a process whose page is seconds old for running.
        printed = eventually(
            lambda verb=verb: _with_words(
                "ended abruptly", run_ncclscope(verb, captures["forked"]).stdout
            )
        )
        assert "killed" not in printed
    assert "called nothing" not in run_ncclscope("status", captures["early_exit"]).stdout


def test_two_ranks_of_one_process_are_two_ranks(tmp_path: Path) -> None:
    packed = DATA / "verdicts" / "2.32.3-v7-2ranks-one-process.jsonl.gz"
    transcript = tmp_path / "transcript.jsonl"
    transcript.write_bytes(gzip.decompress(packed.read_bytes()))
    env = {name: value for name, value in recording(tmp_path / "c").items() if name != "RANK"}
    assert player("play", transcript, env=env).returncode == 0
    code, answer = status(tmp_path / "c")
    assert (code, answer["processes"]["found"], answer["processes"]["expected"]) == (0, 1, 1)
    report = run_ncclscope("report", tmp_path / "c").stdout
    assert "1 of 1 process, 20 calls" in report
    assert "2 ranks on 1 host" in report
    missing = [f for f in diagnose_capture(tmp_path / "c").findings if f.kind == "missing"]
    assert not missing


def test_a_profile_capture_has_its_calls_everywhere(tmp_path: Path) -> None:
    files = transcript_files("2.28.9-v5-2ranks")
    assert play_job(files, tmp_path / "c", mode="profile") == [0] * len(files)
    report = json.loads(run_ncclscope("report", "--json", tmp_path / "c").stdout)
    diagnosis = json.loads(run_ncclscope("diagnose", "--json", tmp_path / "c").stdout)
    assert report["completeness"]["calls"] > 0
    assert diagnosis["completeness"] == report["completeness"]
    calls = report["completeness"]["calls"]
    assert ncclscope.open(tmp_path / "c").completeness().calls == calls
    page = run_ncclscope("timeline", tmp_path / "c", "--html", tmp_path / "page.html")
    assert f"{calls:,} calls" in page.stderr


def status_from_events(capture: Path) -> str:
    answer = as_json(judge(*read_snapshots(process_folders(capture))), str(capture), {})
    return json.dumps(answer)


@pytest.mark.parametrize("name", JOBS)
def test_processes_with_nothing_open_are_read_as_all_others(
    name: str, captures: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if there were no live pages: by the compiled pass where it can, and event by event."""
    monkeypatch.setattr("ncclscope.snapshot.process.read_live_page", lambda _: None)
    answer = status_from_events(captures[name])
    monkeypatch.setattr("ncclscope.snapshot.from_events.settled_rank_states", lambda _: None)
    assert status_from_events(captures[name]) == answer
