"""What another user can put into a capture: no verb waits for it, and none fills its memory."""

import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.player import play_job, transcript_files
from tests.support.verb_runs import VerbLimits, run_verb, run_verbs
from tests.support.writer import SyntheticSpec, synthetic

_MOST_BYTES = 1 << 30


def fifo(path: Path) -> None:
    os.mkfifo(path)


def zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    """A hole of 8 GB behind what was there."""
    with path.open("ab") as file:
        file.truncate(8 << 30)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "whole"
    synthetic(path, SyntheticSpec(processes=2, operations=20))
    assert run_verb(["report", str(path)]).code == 0
    return path


def planted(whole: Path, copy: Path, name: str, make: Callable[[Path], None]) -> Path:
    """A copy of the capture with something else in the place of one of its files."""
    shutil.copytree(whole, copy / "capture")
    folder = next(path for path in (copy / "capture").iterdir() if (path / "meta").exists())
    place = copy / "capture" / name if name in ("model", "timeline") else folder / name
    if make is not sparse:
        if place.is_dir():
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
    make(place)
    return copy / "capture"


@pytest.mark.parametrize("name", ["meta", "log.000000", "tally", "live", "arena", "model"])
def test_no_verb_waits_for_a_fifo(name: str, whole: Path, tmp_path: Path) -> None:
    capture = str(planted(whole, tmp_path, name, fifo))
    runs = [
        ["ls", str(tmp_path)], ["serve", capture, "--all-hosts", "--once"], ["report", capture],
    ]  # fmt: skip
    if name == "meta":
        runs += [
            ["status", capture], ["dump", capture],
            ["pack", capture, "-o", str(tmp_path / "p.tar.gz")],
            ["timeline", capture, "--html", str(tmp_path / "t.html")],
        ]  # fmt: skip
    for words in runs:
        run = run_verb(words, 60)
        assert not run.problem, (words, run)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("live", zeros),
        ("meta", sparse),
        ("tally", sparse),
        ("live", sparse),
        ("log.000000", sparse),
    ],
)
def test_no_verb_reads_without_end(
    name: str, make: Callable[[Path], None], whole: Path, tmp_path: Path
) -> None:
    capture = str(planted(whole, tmp_path, name, make))
    pack = ["pack", capture, "-o", str(tmp_path / "p.tar.gz")]
    reads = ["serve", capture, "--all-hosts", "--once"] if name == "tally" else ["report", capture]
    for words in (pack, reads):
        run = run_verb(words, 60)
        assert not run.problem, (words, run)
        assert run.peak_bytes < _MOST_BYTES, (words, run.peak_bytes)


def test_files_that_were_not_read_are_named(whole: Path, tmp_path: Path) -> None:
    capture = str(planted(whole, tmp_path, "meta", fifo))
    said = " ".join(run_verb(["report", capture]).output.split())
    assert "meta: it is a FIFO, not a regular file" in said


def test_counts_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """Of a profile capture they are everything that a process has on record."""
    job = tmp_path / "job"
    play_job(transcript_files("2.28.9-v5-2ranks"), job, mode="profile")
    tally = next(job.glob("*/tally"))
    tally.unlink()
    said = " ".join(run_verb(["report", str(job)]).output.split())
    assert "tally: its counts are missing" in said
    fifo(tally)
    said = " ".join(run_verb(["report", str(job)]).output.split())
    assert "tally: it is a FIFO, not a regular file" in said


def test_links_of_another_user_lead_nowhere(whole: Path, tmp_path: Path) -> None:
    """Verbs of root read and write nothing behind links, and say whose file they left out."""
    victim, capture, out = tmp_path / "victim", tmp_path / "all" / "capture", tmp_path / "out"
    victim.mkdir()
    out.mkdir()
    (victim / "manifest.json").write_text("a secret of root's")
    shutil.copytree(whole, capture, ignore=shutil.ignore_patterns("model"))
    folder = min(path for path in capture.iterdir() if (path / "meta").exists())
    (folder / "meta").unlink()
    for link in (folder / "meta", folder / "context.jsonl", capture / "system.host.jsonl"):
        link.symlink_to(victim / "manifest.json")
    for link in (capture / "model", capture / "timeline", folder / "decoded"):
        link.symlink_to(victim)
    runs = run_verbs(
        [
            ["report", str(capture)], ["pack", str(capture), "-o", str(out / "p.tar.gz")],
            ["timeline", str(capture), "--html", str(out / "t.html")],
            ["decode", "--remove-raw", str(capture)], ["report", str(capture)],
            ["prune", str(capture.parent), "--keep", "0"],
        ],
        VerbLimits(60),
    )  # fmt: skip
    for run in runs:
        assert not run.problem, run
        assert "a secret" not in run.output + run.errors
    assert "meta: it is a symbolic link, not a regular file" in " ".join(runs[0].output.split())
    with tarfile.open(out / "p.tar.gz") as archive:
        assert all(member.isreg() or member.isdir() for member in archive)
        assert not any(b"a secret" in archive.extractfile(m).read() for m in archive if m.isreg())  # type: ignore[union-attr]
    assert [path.name for path in victim.iterdir()] == ["manifest.json"]
    assert (victim / "manifest.json").read_text() == "a secret of root's"


@pytest.mark.parametrize("name", ["fifo", "zero"])
def test_import_of_what_is_no_file_ends_with_a_sentence(name: str, tmp_path: Path) -> None:
    fifo(tmp_path / "fifo")
    zeros(tmp_path / "zero")
    run = run_verb(["import", str(tmp_path / name), "-o", str(tmp_path / "out")], 30)
    assert run.code == 2, run
    assert "not a regular file" in run.errors
