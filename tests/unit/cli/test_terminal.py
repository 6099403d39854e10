"""Colours of what is printed: where they are wanted, and on which words."""

import pytest

from ncclscope.cli.terminal import paint, uses_colour


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_colours_are_for_terminals(no_variables: pytest.MonkeyPatch) -> None:
    assert not uses_colour()  # stdout is none here
    no_variables.setattr("sys.stdout.isatty", lambda: True)
    assert uses_colour()


def test_variables_say_otherwise(no_variables: pytest.MonkeyPatch) -> None:
    no_variables.setenv("FORCE_COLOR", "1")
    assert uses_colour()
    no_variables.setenv("TERM", "dumb")
    assert not uses_colour()
    no_variables.setenv("TERM", "xterm")
    no_variables.setenv("NO_COLOR", "1")
    assert not uses_colour()


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("1. critical · hang", "1. \x1b[31mcritical\x1b[0m · hang"),
        ("DEAD world", "\x1b[31mDEAD\x1b[0m world"),
        ("  ok    plugin", "  \x1b[32mok\x1b[0m    plugin"),
        ("  note  nccl", "  \x1b[33mnote\x1b[0m  nccl"),
        ("critically low", "critically low"),
        ("  rank 2 last called", "  rank 2 last called"),
        ("", ""),
    ],
)
def test_words_that_say_how_bad_it_is(
    line: str, shown: str, no_variables: pytest.MonkeyPatch
) -> None:
    assert paint(line) == line
    no_variables.setenv("FORCE_COLOR", "1")
    assert paint(line) == shown
