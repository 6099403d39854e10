"""Colours of what is printed: where they are wanted, and on which words."""

import fcntl
import os
import pty
import struct
import termios

import pytest

from ncclscope.cli.terminal import fit, output_width, paint, uses_colour
from ncclscope.humanize import wrapped


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
        ("HANG dp AllReduce #21: rank 2", "\x1b[31mHANG\x1b[0m dp AllReduce #21: rank 2"),
        ("hung: 4 processes", "\x1b[31mhung\x1b[0m: 4 processes"),
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


def test_lines_fit_a_terminal_and_stay_whole_elsewhere(no_variables: pytest.MonkeyPatch) -> None:
    line = "    rank 2 " + "last called AllGather " * 6
    assert fit(line) == [line]
    no_variables.setattr("sys.stdout.isatty", lambda: True)
    no_variables.setenv("COLUMNS", "80")
    parts = fit(line.rstrip())
    assert len(parts) == 2
    assert all(len(part) <= 80 for part in parts)
    assert parts[1].startswith("      ")
    assert " ".join(part.strip() for part in parts) == line.strip()


def test_what_goes_through_a_pipe_is_as_wide_as_the_terminal(
    no_variables: pytest.MonkeyPatch,
) -> None:
    no_variables.delenv("COLUMNS", raising=False)
    reading, writing = os.pipe()
    terminal, other_end = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 90, 0, 0))
    with (
        open(writing, "w") as pipe,
        open(other_end, "w") as screen,
        open(reading),
        open(terminal),
        open(os.devnull, "w") as file,
    ):
        no_variables.setattr("sys.stdout", pipe)
        assert output_width(160) == 160
        no_variables.setattr("sys.stderr", screen)
        assert output_width(160) == 90
        no_variables.setattr("sys.stdout", file)
        assert output_width(160) == 160


def test_a_unit_stays_with_its_number() -> None:
    text = "a rank waited 410 ms (± 17.5 ms), 10 % of 1.2 GB/s, and 3 ranks"
    for width in range(8, 40):
        lines = wrapped(text, width)
        assert " ".join(lines) == text
        assert not [line for line in lines if line.startswith(("ms", "%", "GB/s"))]
    assert wrapped(text, 59)[0].endswith("and 3"), "ranks are no unit"
