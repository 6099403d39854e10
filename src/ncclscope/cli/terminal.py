"""The width and the colours of what is printed."""

import os
import re
import stat
import sys
from typing import TextIO

from ncclscope.humanize import wrapped

_NARROWEST, _WIDEST = 80, 160
_RED, _YELLOW, _GREEN = 31, 33, 32
# Words that say how bad something is, at the beginning of a line.
_COLOURS = {
    "critical": _RED, "HANG": _RED, "MISMATCH": _RED, "DEAD": _RED, "hung": _RED, "dead": _RED,
    "FAIL": _RED,
    "warning": _YELLOW, "waiting": _YELLOW, "unknown": _YELLOW, "note": _YELLOW,
    "ok": _GREEN,
}  # fmt: skip
_FIRST_WORD = re.compile(r"( *(?:\d+\. )?)(\w+)(?=[ ·:]|$)")


def columns_of(stream: TextIO) -> int:
    """Columns of the terminal that a stream is, COLUMNS if that is set; 0 if the stream is none."""
    if not stream.isatty():
        return 0
    try:
        return _wanted_columns() or os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):  # closed, or no terminal after all
        return 0


def _wanted_columns() -> int:
    """The variable COLUMNS; 0 if it is not set, or is no number."""
    text = os.environ.get("COLUMNS", "")
    return int(text) if text.isdecimal() else 0


def output_width(widest: int) -> int:
    """Columns to use, from 80 to `widest`: the terminal's; `widest` if the output is a file.

    The variable COLUMNS sets them in any case. What goes through a pipe into `grep` or `less` is
    mostly read on the terminal that stderr is, so that one's width counts.
    """
    columns = _wanted_columns() or columns_of(sys.stdout)
    if not columns and _is_pipe(sys.stdout):
        columns = columns_of(sys.stderr)
    return min(max(columns or widest, _NARROWEST), widest)


def _is_pipe(stream: TextIO) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # closed, or not a file
        return False


def fit(line: str) -> list[str]:
    """The line in lines that fit a terminal, those that continue it indented; a line of a file or
    a pipe stays whole.
    """
    if not sys.stdout.isatty():
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    width = output_width(_WIDEST) - len(indent)
    return [indent + part for part in wrapped(line.lstrip(), width, "  ")]


def uses_colour() -> bool:
    """Whether what is printed has colours: on a terminal, unless NO_COLOR is set or it has none;
    always with FORCE_COLOR.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()


def paint(line: str) -> str:
    """The line, its first word in colour where that says how bad something is."""
    match = _FIRST_WORD.match(line)
    colour = _COLOURS.get(match[2]) if match and uses_colour() else None
    if match is None or colour is None:
        return line
    return f"{match[1]}\x1b[{colour}m{match[2]}\x1b[0m{line[match.end() :]}"
