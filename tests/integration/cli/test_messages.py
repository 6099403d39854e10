"""Filters that match nothing, files that are something else, misspelled words, full disks."""

import fcntl
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.verb_runs import errors_of, run_verb
from tests.support.writer import SyntheticSpec, synthetic


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("messages") / "c"
    synthetic(path, SyntheticSpec(processes=3, operations=40))
    return path


def test_ranks_that_do_not_exist_are_refused(capture: Path, tmp_path: Path) -> None:
    for words in (["report", capture], ["export", capture, "-o", tmp_path / "x.csv"]):
        assert "cannot select rank 9" in errors_of(*words, "--rank", "9")
        assert "There are ranks 0-2" in errors_of(*words, "--rank", "9")
    assert "No" not in errors_of("report", capture, "--rank", "0,2", code=0)
    assert not (tmp_path / "x.csv").exists()


def test_files_that_are_something_else_say_how_to_go_on(capture: Path, tmp_path: Path) -> None:
    archive = tmp_path / "p.tar.gz"
    errors_of("pack", capture, "-o", archive, code=0)
    assert f"tar xzf {archive}" in errors_of("report", archive)
    (tmp_path / "dumps").mkdir()
    (tmp_path / "dumps" / "nccl_trace_rank_0").write_bytes(b"x")
    assert "ncclscope import" in errors_of("report", tmp_path / "dumps")
    said = errors_of("report", capture.parent)
    assert "it holds" in said
    assert str(capture.parent / "") in said.partition("the newest is")[2]
    assert "ends in .tar.gz" in errors_of("pack", capture, "-o", tmp_path / "x.zip")


def test_misspelled_words_are_answered_by_the_right_usage(capture: Path) -> None:
    assert "Did you mean `ncclscope report`" in errors_of("reprot")
    wrong = errors_of("diagnose", capture, "--basline", "x")
    assert wrong.startswith("usage: ncclscope diagnose")
    assert "did you mean --baseline" in wrong
    assert "cannot understand --last 2x" in errors_of("report", capture, "--last", "2x")
    assert "cannot watch every 0 s" in errors_of("status", capture, "--watch", "0")
    assert ".perfetto" in errors_of("export", capture, "-o", "x.foo")
    assert "without --follow" in errors_of("export", capture, "-o", "x.csv", "--rotate", "1M")
    assert "no such directory" in errors_of("salvage", capture.parent / "nosuch")
    assert errors_of("dump", capture, "--event", "coll", code=0)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize(
    "words", [["report"], ["report", "--json"], ["dump"], ["export", "--to", "csv", "-o", "-"]]
)
def test_a_full_stdout_gives_a_sentence(words: list[str], capture: Path) -> None:
    command = [sys.executable, "-m", "ncclscope", words[0], str(capture), *words[1:]]
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ran.returncode == 1
    assert "No space left on device" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "Exception ignored" not in ran.stderr


def test_prune_leaves_what_ncclscope_did_not_write(tmp_path: Path) -> None:
    capture = tmp_path / "project"
    synthetic(capture, SyntheticSpec(processes=1, operations=5))
    (capture / "train.py").write_text("mine")
    (capture / "model").mkdir()
    (capture / "model" / "weights.bin").write_text("mine")
    errors_of("report", capture, code=0)
    errors_of("prune", tmp_path, "--keep", "0", code=0)
    left = sorted(str(path.relative_to(capture)) for path in capture.rglob("*"))
    assert left == ["model", "model/weights.bin", "train.py"]


def test_a_part_of_a_timeline_in_a_file(capture: Path, tmp_path: Path) -> None:
    sizes = {}
    for name, words in {"all": [], "rank": ["--rank", "1"], "last": ["--last", "1ms"]}.items():
        page = tmp_path / f"{name}.html"
        errors_of("timeline", capture, "--html", page, *words, code=0)
        sizes[name] = page.stat().st_size
    assert sizes["last"] < sizes["all"]
    assert sizes["rank"] < sizes["all"]
    assert "--html FILE and --perfetto" in errors_of("timeline", capture, "--last", "1ms")


@pytest.mark.parametrize(
    "words",
    [
        ("timeline", "--html"), ("report", "--html"), ("pack", "-o"), ("export", "--to", "csv", "-o"),
        ("export", "--to", "jsonl", "-o"), ("export", "--to", "chrome", "-o"),
        ("export", "--to", "perfetto", "-o"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_an_interrupt_ends_quietly(words: tuple[str, ...], capture: Path, tmp_path: Path) -> None:
    """A reader that takes the first bytes only keeps the program busy: an output is larger."""
    fifo = tmp_path / "output"
    os.mkfifo(fifo)
    command = [sys.executable, "-m", "ncclscope", words[0], str(capture), *words[1:], str(fifo)]
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        select.select([reader], [], [], 60)
        assert os.read(reader, 10)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
        os.close(reader)
    assert running.returncode == 130, errors
    assert "Traceback" not in errors


def test_dump_names_states(capture: Path) -> None:
    printed = run_verb(["dump", str(capture), "--event", "KernelCh"]).output
    assert re.search(r"states \w*Stop@\+\d", printed), printed[:500]


def test_serve_says_whose_processes_it_leaves_out(capture: Path) -> None:
    errors = errors_of("serve", capture, "--once", code=0)
    assert "no process of this host is in there, but of node0: --all-hosts serves them" in errors
