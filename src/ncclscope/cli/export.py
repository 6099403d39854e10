"""`ncclscope export`."""

import argparse
import importlib
import importlib.util
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from ncclscope.analysis import summary_from_counters
from ncclscope.analysis.selection import Selection
from ncclscope.capture.housekeeping import parse_bytes
from ncclscope.capture.reader import resolve_capture
from ncclscope.cli.progress import open_model_with_progress, progress_line
from ncclscope.cli.selection_options import (
    add_selection_arguments,
    join_negative_times,
    selection_of,
)
from ncclscope.errors import UsageError
from ncclscope.export.atomic_files import STDOUT
from ncclscope.export.written import Written
from ncclscope.humanize import amount, plural, printable
from ncclscope.model.completeness import SIMULATION
from ncclscope.model.model import Model

# form -> endings of files by which it is known
FORMS = {
    "jsonl": ("jsonl",),
    "csv": ("csv",),
    "parquet": ("parquet",),
    "perfetto": ("pftrace", "perfetto-trace"),
    "chrome": ("json",),
    "inspector": (),
    "callbacks": (),
    "otf2": ("otf2",),
}
DIRECTORIES = ("parquet", "inspector", "callbacks", "otf2")
TIMELINES = ("perfetto", "chrome")
LOGS = ("inspector", "callbacks")  # a file per process
preprocess_argv = join_negative_times
_MANY = 10_000  # operations; of fewer, headers are the larger part
_HEAVY_BYTES = 500_000_000  # of a timeline: about what a browser still loads


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which capture, which operations, in which form and where to."""
    parser.add_argument(
        "capture", nargs="?", metavar="CAPTURE", help="directory or glob (default: the newest here)"
    )
    parser.add_argument(
        "--to", choices=FORMS, help="the form (default: what the name after -o ends in)"
    )
    parser.add_argument(
        "-o", "--output", required=True, metavar="PATH",
        help="a file, compressed if it ends in .gz, or - for stdout; "
        f"for {', '.join(DIRECTORIES)} a directory",
    )  # fmt: skip
    parser.add_argument(
        "--force", action="store_true", help="replace a directory that an export made"
    )
    parser.add_argument(
        "--operations-only", action="store_true",
        help=f"{' and '.join(TIMELINES)}: leave out calls, channels and proxy work",
    )  # fmt: skip
    parser.add_argument(
        "--verbose", action="store_true", help="inspector: with the times of events and channels"
    )
    parser.add_argument(
        "--follow", action="store_true", help="jsonl: go on while the job runs, with what is new"
    )
    parser.add_argument(
        "--rotate", metavar="SIZE", default="256M",
        help="with --follow: begin a new file at this size (default: 256M)",
    )  # fmt: skip
    parser.add_argument(
        "--keep", type=int, metavar="N", default=8,
        help="with --follow: keep so many older files, as PATH.1 and so on (default: 8)",
    )  # fmt: skip
    add_selection_arguments(parser)


def _form(arguments: argparse.Namespace) -> str:
    if arguments.to:
        return str(arguments.to)
    suffix = Path(arguments.output.removesuffix(".gz")).suffix.removeprefix(".")
    for form, endings in FORMS.items():
        if suffix in endings:
            return form
    *others, last = FORMS
    message = f"cannot tell the form of {arguments.output}"
    raise UsageError(message, f"Use --to {', '.join(others)} or {last}")


def _check(form: str, arguments: argparse.Namespace) -> None:
    """Refuses what does not fit together, before anything is read."""
    if form in DIRECTORIES and Path(arguments.output) == STDOUT:
        raise UsageError(f"cannot write {form} to stdout: it is a directory", "Name one")
    for option, forms in (
        ("operations_only", TIMELINES),
        ("verbose", ("inspector",)),
        ("follow", ("jsonl",)),
    ):
        if getattr(arguments, option) and form not in forms:
            message = f"cannot use --{option.replace('_', '-')} with {form}"
            raise UsageError(message, f"It is for {' and '.join(forms)}")


def _write(form: str, arguments: argparse.Namespace, model: Model, chosen: Selection) -> Written:
    """Calls the form's own writer, whose module is imported for it alone."""
    write = getattr(importlib.import_module(f"ncclscope.export.{form}"), f"write_{form}")
    options: dict[str, Any] = {}
    if form in DIRECTORIES:
        options["force"] = arguments.force
    if form in TIMELINES:
        options["operations_only"] = arguments.operations_only
    if form == "inspector":
        options["verbose"] = arguments.verbose
    what = (
        "ranks" if form in (*TIMELINES, "otf2") else "processes" if form in LOGS else "operations"
    )
    progress = progress_line(f"{{done:,}} of {{of:,}} {what} …")
    written = write(model, chosen, Path(arguments.output), progress=progress, **options)
    return written if isinstance(written, Written) else Written(written)


def _size_bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _say(form: str, arguments: argparse.Namespace, model: Model, written: Written) -> None:
    """What was written, and what could not be."""
    path = Path(arguments.output)
    if path != STDOUT:
        size, count = _size_bytes(path), written.count
        each = f", {size / count:.1f} bytes each" if count >= _MANY else ""
        what = f"{plural(count, written.unit)}, {amount(size)}{each}"
        print(f"           written: {printable(str(path))}: {what}", file=sys.stderr)
        if form in TIMELINES and size > _HEAVY_BYTES and path.suffix != ".gz":
            hint = "viewers load all of it into memory: --last 30s, --rank or --operations-only"
            print(f"           {hint} make it smaller", file=sys.stderr)
    if model.completeness.calls_outside:
        said = model.completeness.outside_in_words()
        print(f"           not on record: {said}", file=sys.stderr)
    if written.timeless:
        left = plural(written.timeless, "operation")
        print(f"           left out: {left} without a known time", file=sys.stderr)
    if form == "parquet" and importlib.util.find_spec("pyarrow") is None:
        hint = "with pyarrow it is up to a sixth smaller: pip install pyarrow"
        print(f"           {hint}", file=sys.stderr)


def _check_operations(model: Model) -> None:
    if summary_from_counters.has_counters_only(model) and not len(
        model.tables["operations"]["event"]
    ):
        message = f"cannot export operations of {model.path}: it has totals only"
        raise UsageError(message, "Record with --mode trace to have operations")


def _follow(arguments: argparse.Namespace, capture: Path) -> int:
    """Writes what is new until the job is over, or somebody says that it is enough."""
    follow = importlib.import_module("ncclscope.export.follow")
    out = follow.Rotated(
        Path(arguments.output), parse_bytes(arguments.rotate), max(arguments.keep, 0)
    )
    enough = threading.Event()  # lines stay whole: it stops between looks
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: enough.set())

    def choose(model: Model) -> Selection:
        _check_operations(model)
        return selection_of(model, arguments)

    progress = progress_line("{done:,} operations …")
    written = follow.follow_jsonl(capture, choose, out, enough, progress)
    print(f"ncclscope: {plural(written.count, 'operation')} written", file=sys.stderr)
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Writes the chosen operations."""
    form = _form(arguments)
    _check(form, arguments)
    capture = resolve_capture(arguments.capture)
    if arguments.follow:
        return _follow(arguments, capture)
    model = open_model_with_progress(capture)
    if form != "parquet":  # a dataset holds counters as well
        _check_operations(model)
    written = _write(form, arguments, model, selection_of(model, arguments))
    print(f"ncclscope: {model.completeness.line()}", file=sys.stderr)
    if model.completeness.is_simulation:
        print(f"           {SIMULATION}", file=sys.stderr)
    _say(form, arguments, model, written)
    return 0
