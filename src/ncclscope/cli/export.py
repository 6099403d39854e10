"""`ncclscope export`."""

import argparse
import sys
from pathlib import Path

from ncclscope.analysis import counted
from ncclscope.capture.reader import resolve_capture
from ncclscope.cli.progress import open_model_aloud, progress_line
from ncclscope.cli.selecting import add_selection_arguments, selection_of, with_moments_joined
from ncclscope.errors import UsageError
from ncclscope.export.csv import write_csv
from ncclscope.export.jsonl import write_jsonl
from ncclscope.export.parquet import has_pyarrow, write_parquet
from ncclscope.export.text import STDOUT
from ncclscope.words import amount, plural, printable

FORMS = ("jsonl", "csv", "parquet")
prepared = with_moments_joined
_MANY = 10_000  # operations; of fewer, headers are the larger part


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
        help="a file, compressed if it ends in .gz, or - for stdout; for parquet a directory",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="replace a dataset that is there")
    add_selection_arguments(parser)


def _form(arguments: argparse.Namespace) -> str:
    if arguments.to:
        return str(arguments.to)
    suffix = Path(arguments.output.removesuffix(".gz")).suffix.removeprefix(".")
    if suffix not in FORMS:
        message = f"cannot tell the form of {arguments.output}"
        raise UsageError(message, f"Use --to {', '.join(FORMS[:-1])} or {FORMS[-1]}")
    return suffix


def _size_bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def run(arguments: argparse.Namespace) -> int:
    """Writes the chosen operations."""
    form, path = _form(arguments), Path(arguments.output)
    model = open_model_aloud(resolve_capture(arguments.capture))
    if counted.has_counters_only(model):
        message = f"cannot export operations of {model.path}: it has totals only"
        raise UsageError(message, "Record with --mode trace to have operations")
    chosen = selection_of(model, arguments)
    progress = progress_line("{done:,} of {of:,} operations …")
    if form == "parquet":
        if path == STDOUT:
            raise UsageError("cannot write parquet to stdout: it is a directory", "Name one")
        count = write_parquet(model, chosen, path, arguments.force, progress)
    else:
        write = write_jsonl if form == "jsonl" else write_csv
        count = write(model, chosen, path, progress)
    print(f"ncclscope: {model.completeness.line()}", file=sys.stderr)
    if path != STDOUT:
        size = _size_bytes(path)
        each = f", {size / count:.1f} bytes each" if count >= _MANY else ""
        what = f"{plural(count, 'operation')}, {amount(size)}{each}"
        print(f"           written: {printable(str(path))}: {what}", file=sys.stderr)
        if form == "parquet" and not has_pyarrow():
            hint = "with pyarrow it is up to a sixth smaller: pip install 'ncclscope[arrow]'"
            print(f"           {hint}", file=sys.stderr)
    return 0
