"""`ncclscope compare`."""

import argparse
import json

from ncclscope.capture.reader import resolve_capture
from ncclscope.cli.progress import open_model_with_progress
from ncclscope.cli.terminal import output_width
from ncclscope.diagnose.comparison import SLOWER, compare
from ncclscope.report.comparison import as_json, lines

_SLOWER_EXIT = 3
_WIDEST = 160


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which captures to compare, and how to show it."""
    parser.add_argument("a", metavar="A", help="capture to compare with: directory or glob")
    parser.add_argument("b", metavar="B", help="capture in question")
    parser.add_argument("--json", action="store_true", help="JSON; see docs/verbs/compare.md")
    parser.add_argument("--gate", action="store_true", help="exit with 3 if B is slower")


def run(arguments: argparse.Namespace) -> int:
    """Prints what became slower or faster."""
    paths = [resolve_capture(name) for name in (arguments.a, arguments.b)]
    comparison = compare(*(open_model_with_progress(path) for path in paths))
    a, b = map(str, paths)
    if arguments.json:
        print(json.dumps(as_json(comparison, a, b), indent=2, allow_nan=False))
    else:
        for line in lines(comparison, a, b, output_width(_WIDEST)):
            print(line)
    return _SLOWER_EXIT if arguments.gate and comparison.verdict == SLOWER else 0
