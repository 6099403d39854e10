"""Commands that are printed work when they are copied, however this program was called."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ncclscope.cli import suggested_commands

SCRIPT = Path(sys.executable).with_name("ncclscope")
BIN = str(SCRIPT.parent)


@pytest.mark.parametrize(
    ("argv0", "path", "words"),
    [
        (str(SCRIPT), BIN, ["ncclscope"]),
        (str(SCRIPT), "/nowhere", [str(SCRIPT)]),
        ("/x/ncclscope/__main__.py", BIN, ["python", "-m", "ncclscope"]),
        ("/x/ncclscope/__main__.py", "/nowhere", [sys.executable, "-m", "ncclscope"]),
    ],
)
def test_this_program(
    argv0: str, path: str, words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [argv0])
    monkeypatch.setenv("PATH", path)
    assert suggested_commands.own_words() == words
    monkeypatch.setenv("PATH", f"{path}:/usr/bin:/bin")
    copied = subprocess.run(
        ["sh", "-c", suggested_commands.command("--version")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert copied.stdout.startswith("ncclscope ")


def test_another_program_of_that_name_is_not_meant(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = tmp_path / "ncclscope"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT)])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert suggested_commands.own_words() == [str(SCRIPT)]


def test_from_here_where_that_is_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(SCRIPT.parents[2])
    monkeypatch.setenv("PATH", "/nowhere")
    assert suggested_commands.python_words() == [str(Path(sys.executable).relative_to(Path.cwd()))]


def test_names_are_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/a b/ncclscope"])
    assert shlex.split(suggested_commands.command("report", Path("c;d"))) == [
        "/a b/ncclscope",
        "report",
        "c;d",
    ]
