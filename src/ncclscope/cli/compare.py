"""`ncclscope compare`."""

import argparse
import json
from pathlib import Path

from ncclscope.analysis.time_selection import model_between
from ncclscope.analysis.waiting.kept_account import kept_waiting_account
from ncclscope.arrays.freed_memory import keep_freed_memory
from ncclscope.capture.reader import resolve_capture
from ncclscope.cli.arguments.compare import BETWEEN
from ncclscope.cli.arguments.equal_jobs import check_equal_jobs
from ncclscope.cli.progress import open_model_with_progress
from ncclscope.cli.selection_options import check_operations_for_time, time_selection_of
from ncclscope.cli.terminal import output_width
from ncclscope.diagnose.comparison import compare
from ncclscope.diagnose.comparison_kinds import of_kinds
from ncclscope.diagnose.comparison_verdict import SLOWER
from ncclscope.errors import UsageError
from ncclscope.history.difference import LAST_EQUAL, difference_of_sums
from ncclscope.history.place import history_directory
from ncclscope.history.sums import sums_of
from ncclscope.model.model import Model
from ncclscope.report.comparison import as_json, lines
from ncclscope.report.history_difference import difference_as_json, difference_lines

_SLOWER_EXIT, _UNRESOLVED_EXIT = 3, 5
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


def _model(path: Path, arguments: argparse.Namespace) -> Model:
    """The model of the chosen time, which counts from the start or end of each run."""
    model = open_model_with_progress(path, arguments.on)
    keep_freed_memory()
    check_operations_for_time(model, arguments)
    return model_between(model, time_selection_of(model, arguments))


def _exit_code(arguments: argparse.Namespace, verdict: str, bounds_loss: bool) -> int:
    """A gate passes only where the record bounds the loss, not where none was found."""
    if not arguments.gate:
        return 0
    if verdict == SLOWER:
        return _SLOWER_EXIT
    return 0 if bounds_loss else _UNRESOLVED_EXIT


def _run_with_history(arguments: argparse.Namespace) -> int:
    """Prints whether one job differs from equal ones of a history."""
    if len(arguments.captures) != 1 or arguments.comm or arguments.op:
        message = "compare --history takes one capture, and neither --comm nor --op"
        raise UsageError(message, "Its other side are the last equal jobs of the history")
    sums = sums_of(_model(resolve_capture(arguments.captures[0]), arguments))
    equal = arguments.equal_jobs or LAST_EQUAL
    changed, left_out = difference_of_sums(history_directory(arguments.history), sums, equal)
    if arguments.json:
        print(json.dumps(difference_as_json(changed), indent=2, allow_nan=False))
    else:
        for line in difference_lines(changed, left_out, output_width(_WIDEST)):
            print(line)
    return _exit_code(arguments, changed.verdict, changed.bounds_loss)


def run(arguments: argparse.Namespace) -> int:
    """Prints whether B is slower or faster than A, and what of it."""
    check_equal_jobs(arguments)
    if arguments.history:
        return _run_with_history(arguments)
    paths_a, paths_b = ([resolve_capture(name) for name in side] for side in _sides(arguments))
    models_a, models_b = ([_model(path, arguments) for path in side] for side in (paths_a, paths_b))
    comparison = compare(models_a, models_b, kept_waiting_account)
    comparison = of_kinds(comparison, arguments.comm, arguments.op)
    a, b = list(map(str, paths_a)), list(map(str, paths_b))
    if arguments.json:
        print(json.dumps(as_json(comparison, a, b), indent=2, allow_nan=False))
    else:
        for line in lines(comparison, a, b, output_width(_WIDEST)):
            print(line)
    return _exit_code(arguments, comparison.verdict, comparison.bounds_loss)
