"""The width of what is printed."""

import os
import shutil
import sys

_NARROWEST = 80


def output_width(widest: int) -> int:
    """Columns to use, from 80 to `widest`: the terminal's; `widest` if the output is none.

    The variable COLUMNS sets them in any case.
    """
    columns = widest
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        columns = shutil.get_terminal_size((widest, 24)).columns
    return min(max(columns, _NARROWEST), widest)
