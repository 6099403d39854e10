"""`ncclscope report`."""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from ncclscope.analysis import counted, traced
from ncclscope.analysis.selection import Selection, communicator_rows, function_names, parse_by
from ncclscope.analysis.summary import Summary, check_sort, sorted_groups
from ncclscope.capture.reader import resolve_capture
from ncclscope.cli.window import NEGATIVE, parse_moment
from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.model.build import open_model
from ncclscope.model.model import Model
from ncclscope.report.html import as_html
from ncclscope.report.machine import as_csv, as_json
from ncclscope.report.terminal import Style, terminal_lines

_WIDEST = 160


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which capture, which operations, grouped how, in which form."""
    parser._negative_number_matcher = NEGATIVE  # so that `--since -5m` needs no `=`
    parser.add_argument(
        "capture", nargs="?", metavar="CAPTURE", help="directory or glob (default: the newest here)"
    )
    parser.add_argument(
        "--by", action="append", metavar="KEY,…",
        help="group by communicator, function, size, datatype (default), algorithm, protocol, "
        "rank, host, thread, variant, tag; +KEY adds to the default",
    )  # fmt: skip
    parser.add_argument(
        "--comm", action="append", metavar="NAME", help="only this communicator; tp* works, too"
    )
    parser.add_argument("--op", action="append", metavar="NAME", help="only this function")
    parser.add_argument(
        "--rank", action="append", type=int, metavar="N", help="only this global rank"
    )
    moment = "14:05:30, 2026-11-15T14:05:30, -5m (before the end) or 12.5 (s from the start)"
    parser.add_argument("--since", metavar="TIME", help=f"only what began then or later: {moment}")
    parser.add_argument("--until", metavar="TIME", help="only what began earlier")
    parser.add_argument("--sort", default="time", metavar="COLUMN", help="(default: time)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--json", action="store_true", help="one JSON object; see docs/verbs/report.md"
    )
    form.add_argument("--csv", action="store_true", help="the operations, one line a group")
    form.add_argument("--html", metavar="FILE", help="one self-contained page")


def _progress() -> Callable[[int, int], None] | None:
    """A line on the terminal that shows how far the model is."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, of: int) -> None:
        line = "" if done >= of else f"reading process {done + 1:,} of {of:,} …"
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    return show


def _window(model: Model, arguments: argparse.Namespace) -> tuple[int | None, int | None]:
    """--since and --until on the model's clock."""
    if arguments.since is None and arguments.until is None:
        return None, None
    first, last = traced.extent(model, Selection())
    moments = [
        None if text is None else parse_moment(text, first, last, model.realtime_offset_ns)
        for text in (arguments.since, arguments.until)
    ]
    if moments[0] is not None and moments[1] is not None and moments[0] >= moments[1]:
        raise UsageError("nothing lies between --since and --until", "Swap them")
    return moments[0], moments[1]


def _summary(model: Model, arguments: argparse.Namespace, by: tuple[str, ...]) -> Summary:
    communicators = communicator_rows(model, arguments.comm) if arguments.comm else None
    if counted.has_counters_only(model):
        for option in ("rank", "since", "until"):
            if getattr(arguments, option) is not None:
                message = f"cannot report --{option} of {model.path}: it has totals only"
                raise UsageError(message, "Record with --mode trace to be able to")
        return counted.summarize(model, communicators, arguments.op, by)
    functions = function_names(model.words["function"], arguments.op) if arguments.op else None
    ranks = tuple(arguments.rank) if arguments.rank else None
    chosen = Selection(communicators, functions, ranks, *_window(model, arguments))
    return traced.summarize(model, chosen, by)


def _style(arguments: argparse.Namespace) -> Style:
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((_WIDEST, 24)).columns if terminal else _WIDEST
    if "COLUMNS" in os.environ:
        width = shutil.get_terminal_size().columns
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    chosen = arguments.comm or arguments.op
    most = {"most_rows": 10_000} if chosen else {}
    return Style(min(max(width, 80), _WIDEST), terminal and not plain, **most)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        message = f"cannot write {path}: {error.strerror}"
        raise NcclscopeError(message, "Name another file with --html") from None


def run(arguments: argparse.Namespace) -> int:
    """Prints or writes the report."""
    by = parse_by(arguments.by or ["+communicator"])
    check_sort(arguments.sort, by)
    progress = _progress()
    model = open_model(resolve_capture(arguments.capture), progress)
    if progress:
        progress(1, 1)
    summary = _summary(model, arguments, by)
    groups = sorted_groups(summary.groups, arguments.sort)
    if arguments.json:
        print(json.dumps(as_json(summary, groups), indent=2, allow_nan=False))
    elif arguments.csv:
        print(as_csv(summary, groups), end="")
    elif arguments.html:
        _write(Path(arguments.html), as_html(summary, groups))
        print(summary.completeness.line())
        print(f"written: {arguments.html}")
    else:
        for line in terminal_lines(summary, groups, _style(arguments)):
            print(line)
    return 0
