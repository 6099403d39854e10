"""`ncclscope export`."""

import argparse
import signal
import threading
from pathlib import Path

from ncclscope.analysis.counted_completeness import has_counters_only
from ncclscope.analysis.selection import Selection
from ncclscope.capture.housekeeping import parse_bytes
from ncclscope.capture.reader import resolve_capture
from ncclscope.cli.arguments.export import OWN_OPTIONS, formats_with, names_in_words
from ncclscope.cli.engine_options import engine_on
from ncclscope.cli.messages import print_message
from ncclscope.cli.progress import open_model_with_progress, progress_line
from ncclscope.cli.removed_logs import warn_of_left_out_tables, warn_of_removed_logs
from ncclscope.cli.selection_options import selection_of
from ncclscope.errors import UsageError
from ncclscope.export.formats import FORMATS, Export
from ncclscope.export.result import ExportResult
from ncclscope.humanize import amount, plural, printable
from ncclscope.model.completeness import SIMULATION
from ncclscope.model.model import Model
from ncclscope.model.periodic_steps import with_periodic_steps
from ncclscope.output_files import check_file, is_stdout, size_written

_ROTATE_SIZE, _KEEP_FILES = "256M", 8
_MANY = 10_000  # operations; of fewer, headers are the larger part


def _format(arguments: argparse.Namespace) -> Export:
    """The format that --to names, else the one that PATH ends in."""
    if arguments.to:
        return FORMATS[arguments.to]
    suffix = Path(arguments.output.removesuffix(".gz")).suffix.removeprefix(".")
    for export in FORMATS.values():
        if suffix in export.endings:
            return export
    *others, last = FORMATS
    endings = [f".{ending}" for export in FORMATS.values() for ending in export.endings]
    message = f"cannot tell the format of {arguments.output}"
    hint = f"Let its name end in {', '.join(endings)}, or use --to {', '.join(others)} or {last}"
    raise UsageError(message, hint)


def _check(export: Export, arguments: argparse.Namespace) -> None:
    """Raises UsageError for options that do not fit together, before anything is read."""
    if not export.is_directory:
        check_file(Path(arguments.output))
    elif is_stdout(Path(arguments.output)):
        raise UsageError(f"cannot write {export.name} to stdout: it is a directory", "Name one")
    for option in ("rotate", "keep"):
        if getattr(arguments, option) is not None and not arguments.follow:
            raise UsageError(f"cannot use --{option} without --follow", "Add it, or leave this out")
    if arguments.keep is not None and arguments.keep < 0:
        raise UsageError(f"cannot keep {arguments.keep} files", "Give 0 or more")
    if arguments.force and not export.is_directory:
        hint = "Files are replaced without it; it is for formats that are directories"
        raise UsageError(f"cannot use --force with {export.name}", hint)
    for option in OWN_OPTIONS:
        names = formats_with(option)
        if getattr(arguments, option) and export.name not in names:
            message = f"cannot use --{option.replace('_', '-')} with {export.name}"
            raise UsageError(message, f"It is for {names_in_words(names)}")


def _write(
    export: Export, arguments: argparse.Namespace, model: Model, selection: Selection
) -> ExportResult:
    options = {name: getattr(arguments, name) for name in export.options}
    if export.uses_workers:
        options["engine_of"] = engine_on(arguments.on)
    progress = progress_line(f"{{done:,}} of {{of:,}} {export.progress_unit} …")
    return export.write(model, selection, Path(arguments.output), progress=progress, **options)


def _report(path: Path, model: Model, written: ExportResult) -> None:
    """Prints what was written and what was left out."""
    size, count = size_written(path), written.count
    if size is not None:
        each = f", {size / count:.1f} bytes each" if count >= _MANY else ""
        what = f"{plural(count, written.unit)}, {amount(size)}{each}"
        print_message(f"           written: {printable(str(path))}: {what}")
    for note in written.notes:
        print_message(f"           {note}")
    if model.completeness.calls_outside:
        unrecorded = model.completeness.outside_in_words()
        print_message(f"           not on record: {unrecorded}")
    if written.untimed:
        left_out = plural(written.untimed, "operation")
        print_message(f"           left out: {left_out} without a known time")


def _check_operations(model: Model) -> None:
    if has_counters_only(model) and not len(model.tables["operations"]["event"]):
        message = f"cannot export operations of {model.path}: it has totals only"
        raise UsageError(message, "Record with --mode trace to have operations")


def _follow(arguments: argparse.Namespace, capture: Path) -> int:
    """Writes new operations until the job is over, or until Ctrl-C or SIGTERM."""
    from ncclscope.export.follow import RotatingFile, follow_jsonl

    out = RotatingFile(
        Path(arguments.output),
        parse_bytes(arguments.rotate or _ROTATE_SIZE),
        _KEEP_FILES if arguments.keep is None else arguments.keep,
    )
    stop = threading.Event()  # it stops between readings, so that lines stay whole
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())

    def select(model: Model) -> Selection:
        _check_operations(model)
        return selection_of(model, arguments)

    progress = progress_line("{done:,} operations …")
    written = follow_jsonl(capture, select, out, stop, progress)
    print_message(f"ncclscope: {plural(written.count, 'operation')} written")
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Writes the selected operations."""
    export = _format(arguments)
    _check(export, arguments)
    capture = resolve_capture(arguments.capture)
    if arguments.follow:
        return _follow(arguments, capture)
    model = with_periodic_steps(open_model_with_progress(capture, arguments.on))
    if export.name != "parquet":  # a dataset holds counters as well
        _check_operations(model)
    if export.name == "callbacks":
        warn_of_removed_logs(capture, "there are no callbacks")
    warn_of_left_out_tables(capture)
    written = _write(export, arguments, model, selection_of(model, arguments))
    print_message(f"ncclscope: {model.completeness.line()}")
    if model.completeness.is_simulation:
        print_message(f"           {SIMULATION}")
    _report(Path(arguments.output), model, written)
    return 0
