"""A limit of memory: it holds, and who meets it reads a sentence."""

import os
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from ncclscope.arrays.memory_limit import VARIABLE, database_limit_bytes, memory_limit_bytes
from ncclscope.cli import main
from ncclscope.errors import UsageError
from tests.support.writer import SyntheticSpec, synthetic


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", None), ("4096", 4096), ("64K", 64 << 10), ("1.5G", 3 << 29), ("8MiB", 8 << 20)],
)
def test_sizes(text: str, expected: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, text)
    assert memory_limit_bytes() == expected
    assert database_limit_bytes() == (None if expected is None else expected // 2)


@pytest.mark.parametrize("text", ["much", "-1", "0", "8GX", "8 G", "1e9"])
def test_what_is_no_size(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(UsageError, match="is no size"):
        memory_limit_bytes()


def test_the_kernel_keeps_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "2G")
    program = (
        "import numpy; from ncclscope.arrays.memory_limit import limit_memory; limit_memory()\n"
        "numpy.ones(1 << 20); print('small')\n"
        "try: numpy.ones(1 << 29)\n"
        "except MemoryError: print('large')"
    )
    command = [sys.executable, "-c", program]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["small", "large"]


def test_a_verb_meets_the_limit(tmp_path: Path) -> None:
    """With less than its libraries take it says what is the least. That is not enough for these
    operations, and with more the report is made.
    """
    capture = tmp_path / "capture"
    synthetic(capture, SyntheticSpec(processes=2, operations=100_000, communicators=((0, 1),)))

    def report(limit: str) -> tuple[int, str, str]:
        words = [sys.executable, "-m", "ncclscope", "report", str(capture)]
        environment = os.environ | {VARIABLE: limit}
        answer = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
        return answer.returncode, answer.stdout, answer.stderr

    code, printed, errors = report("1M")
    assert (code, printed) == (2, "")
    match = re.fullmatch(
        rf"ncclscope: {VARIABLE} allows 1M, and \d+M are taken before any work\. Set it to (\d+M) "
        "at least\n",
        errors,
    )
    assert match, errors
    code, printed, errors = report(match[1])
    assert (code, printed) == (1, "")
    assert re.fullmatch(
        rf"ncclscope: there is not enough memory\. Choose a part: .*; or raise {VARIABLE} if it is set\n",
        errors,
    ), errors
    assert not list(capture.glob("*model*"))
    code, printed, errors = report("16G")
    assert (code, errors) == (0, "")
    assert "AllReduce" in printed


@pytest.mark.parametrize("error", [MemoryError("1 TiB"), duckdb.OutOfMemoryException("4 GiB")])
def test_too_little_memory_is_a_sentence(
    error: Exception,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    synthetic(tmp_path / "capture", SyntheticSpec(processes=1, operations=1))

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("ncclscope.cli.progress.open_model", fail)
    assert main(["report", str(tmp_path / "capture")]) == 1
    assert "there is not enough memory. Choose a part:" in capsys.readouterr().err


def test_a_thread_that_cannot_be_started_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("ncclscope.cli.report.resolve_capture", fail)
    assert main(["report", "x"]) == 1
    assert "there is not enough memory" in capsys.readouterr().err
