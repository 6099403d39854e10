"""What verbs say on stderr, beside their output."""

import sys

from ncclscope.cli.terminal import columns_of
from ncclscope.humanize import wrapped

_INDENT = " " * len("ncclscope: ")
_NARROWEST = 40


def print_message(*lines: str) -> None:
    """Prints lines on stderr. Lines for a terminal are wrapped, but for commands to copy; those for
    a file or a pipe stay whole.
    """
    columns = columns_of(sys.stderr)
    width = max(columns, _NARROWEST) if columns else 0
    for line in lines:
        is_command = line.lstrip().startswith("next: ")
        if 0 < width < len(line) and not is_command:
            line = "\n".join(_fit(line, width))
        print(line, file=sys.stderr)


def _fit(line: str, width: int) -> list[str]:
    """The line in lines of a width, all but a first one with the tool's name indented."""
    text = line.removeprefix(_INDENT)
    if text == line:
        return wrapped(line, width, _INDENT)
    return [_INDENT + part for part in wrapped(text, width - len(_INDENT))]
