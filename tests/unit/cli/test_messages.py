"""What verbs say on stderr: lines that a terminal can show, whole ones elsewhere."""

import pytest

from ncclscope.cli.messages import print_message

_LINE = "ncclscope: " + "cannot open demo: no such directory " * 5


def _shown(capsys: pytest.CaptureFixture[str], *lines: str) -> list[str]:
    print_message(*lines)
    return capsys.readouterr().err.splitlines()


def test_a_file_gets_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert _shown(capsys, _LINE) == [_LINE]


def test_a_terminal_gets_lines_that_fit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    first, *others = _shown(capsys, _LINE.rstrip())
    assert first.startswith("ncclscope: cannot open")
    assert len(others) == 2
    assert all(line[:11].isspace() and not line[11].isspace() for line in others)
    assert all(len(line) <= 80 for line in [first, *others])
    continued = _shown(capsys, " " * 11 + "GPU timing kernel, " * 9)
    assert len(continued) > 1
    assert all(line[:11].isspace() and not line[11].isspace() for line in continued)


def test_commands_to_copy_stay_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    line = "           next: ncclscope report " + "/a/long/path" * 9
    assert _shown(capsys, line) == [line]
