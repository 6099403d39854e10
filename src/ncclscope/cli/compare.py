"""`ncclscope compare`."""

import argparse
import json

from ncclscope.capture.reader import resolve_capture
from ncclscope.cli.arguments.compare import BETWEEN
from ncclscope.cli.progress import open_model_with_progress
from ncclscope.cli.terminal import output_width
from ncclscope.diagnose.comparison import SLOWER, compare
from ncclscope.errors import UsageError
from ncclscope.report.comparison import as_json, lines

_SLOWER_EXIT, _NOT_COMPARED_EXIT = 3, 5
_WIDEST = 160


def _sides(arguments: argparse.Namespace) -> tuple[list[str], list[str]]:
    names: list[str] = arguments.captures
    if BETWEEN not in names and len(names) == 2:
        return names[:1], names[1:]
    place = names.index(BETWEEN) if names.count(BETWEEN) == 1 else 0
    if not 0 < place < len(names) - 1:
        count = len(names) - names.count(BETWEEN)
        raise UsageError(
            f"cannot tell which of {count} captures are A and which are B",
            "Give two, or several runs of each with -- between: compare a1 a2 a3 -- b1 b2",
        )
    return names[:place], names[place + 1 :]


def run(arguments: argparse.Namespace) -> int:
    """Prints whether B is slower or faster than A, and what of it."""
    paths_a, paths_b = ([resolve_capture(name) for name in side] for side in _sides(arguments))
    comparison = compare(
        [open_model_with_progress(path, arguments.on) for path in paths_a],
        [open_model_with_progress(path, arguments.on) for path in paths_b],
    )
    a, b = list(map(str, paths_a)), list(map(str, paths_b))
    if arguments.json:
        print(json.dumps(as_json(comparison, a, b), indent=2, allow_nan=False))
    else:
        for line in lines(comparison, a, b, output_width(_WIDEST)):
            print(line)
    if not arguments.gate:
        return 0
    if comparison.reason:
        return _NOT_COMPARED_EXIT
    return _SLOWER_EXIT if comparison.verdict == SLOWER else 0
