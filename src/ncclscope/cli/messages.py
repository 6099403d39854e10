"""What verbs say on stderr, beside their output."""

import os
import sys

from ncclscope.humanize import wrapped

_INDENT = " " * len("ncclscope: ")
_NARROWEST = 40


def print_message(*lines: str) -> None:
    """Prints lines on stderr. Lines for a terminal are wrapped, but for commands to copy; those for
    a file or a pipe stay whole.
    """
    width = _terminal_width()
    for line in lines:
        is_command = line.lstrip().startswith("next: ")
        if 0 < width < len(line) and not is_command:
            line = "\n".join(_fit(line, width))
        print(line, file=sys.stderr)


def _terminal_width() -> int:
    """Columns of the terminal that stderr is, COLUMNS if that is set; 0 if stderr is none."""
    if not sys.stderr.isatty():
        return 0
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isdecimal() and int(wanted):
        return max(int(wanted), _NARROWEST)
    columns = os.get_terminal_size(sys.stderr.fileno()).columns
    return max(columns, _NARROWEST) if columns else 0


def _fit(line: str, width: int) -> list[str]:
    """The line in lines of a width, all but a first one with the tool's name indented."""
    text = line.removeprefix(_INDENT)
    if text == line:
        return wrapped(line, width, _INDENT)
    return [_INDENT + part for part in wrapped(text, width - len(_INDENT))]
