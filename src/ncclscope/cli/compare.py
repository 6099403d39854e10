"""`ncclscope compare`."""

import argparse
import json

from ncclscope.capture.reader import resolve_capture
from ncclscope.cli.engine_options import add_engine_argument
from ncclscope.cli.progress import open_model_with_progress
from ncclscope.cli.terminal import output_width
from ncclscope.diagnose.comparison import SLOWER, compare
from ncclscope.errors import UsageError
from ncclscope.report.comparison import as_json, lines

_SLOWER_EXIT, _NOT_COMPARED_EXIT = 3, 5
_WIDEST = 160
_BETWEEN = "\0"  # stands for `--`, which argparse drops; nobody can give it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which captures to compare, and how to show it."""
    parser.usage = "ncclscope compare [--json] [--gate] [--on WHERE] A B | A… -- B…"
    parser.add_argument(
        "captures", nargs="+", metavar="A B", help="captures: directories or globs, one of each job"
    )
    parser.add_argument("--json", action="store_true", help="JSON; see docs/verbs/compare.md")
    parser.add_argument(
        "--gate", action="store_true", help="exit with 3 if B is slower, 5 if nothing was compared"
    )
    add_engine_argument(parser)


def preprocess_argv(words: list[str]) -> list[str]:
    """The words with a mark instead of `--`, which separates runs of A from runs of B."""
    return [_BETWEEN if word == "--" else word for word in words]


def _sides(arguments: argparse.Namespace) -> tuple[list[str], list[str]]:
    names: list[str] = arguments.captures
    if _BETWEEN not in names and len(names) == 2:
        return names[:1], names[1:]
    place = names.index(_BETWEEN) if names.count(_BETWEEN) == 1 else 0
    if not 0 < place < len(names) - 1:
        count = len(names) - names.count(_BETWEEN)
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
