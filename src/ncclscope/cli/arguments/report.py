"""The arguments of `ncclscope report`."""

import argparse

from ncclscope.cli.arguments.engine import add_engine_argument
from ncclscope.cli.arguments.json_output import add_json_argument
from ncclscope.cli.arguments.selection import add_selection_arguments, join_negative_times

preprocess_argv = join_negative_times


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which capture to report, which operations of it, how to group and how to show them."""
    parser.add_argument(
        "capture", nargs="?", metavar="CAPTURE", help="directory or glob (default: the newest here)"
    )
    parser.add_argument(
        "--by", action="append", metavar="KEY,…",
        help="group by communicator, function, size, datatype (default), algorithm, protocol, "
        "rank, host, thread, variant, tag, step, phase, module, dimension; +KEY adds to the "
        "default",
    )  # fmt: skip
    add_selection_arguments(parser)
    add_engine_argument(parser)
    parser.add_argument("--sort", default="time", metavar="COLUMN", help="(default: time)")
    form = parser.add_mutually_exclusive_group()
    add_json_argument(form)
    form.add_argument("--csv", action="store_true", help="the operations, one line a group")
    form.add_argument("--html", metavar="FILE", help="one self-contained page")
    parser.add_argument(
        "--kernels", action="append", metavar="FILE", default=[],
        help="a trace of PyTorch's profiler, or an SQLite export of Nsight Systems, of the same "
        "run: exposed communication, exactly",
    )  # fmt: skip
    parser.add_argument(
        "--require-complete", action="store_true", help="exit with 5 if anything is missing"
    )
