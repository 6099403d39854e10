"""The arguments of `ncclscope whatif`."""

import argparse

from ncclscope.cli.arguments.json_output import add_json_argument
from ncclscope.cli.arguments.selection import add_time_arguments, join_negative_times

preprocess_argv = join_negative_times


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which capture, and what is changed; options may be repeated."""
    parser.add_argument(
        "capture", nargs="?", metavar="CAPTURE", help="directory or glob (default: the newest here)"
    )
    parser.add_argument(
        "--without", nargs=2, action="append", default=[], metavar=("rank|comm", "WHICH"),
        help="without delays of ranks (`rank 2`, `ranks 2,5-7`), or of a communicator's transfers",
    )  # fmt: skip
    parser.add_argument(
        "--link", nargs=3, action="append", default=[], metavar=("A-B", "at", "median"),
        help="sends between two ranks as fast as the usual link",
    )  # fmt: skip
    parser.add_argument(
        "--comm", nargs="+", action="append", default=[], metavar="NAME at SPEED",
        help="transfers of communicators `at median`, or `at 100 GB/s` of bus bandwidth",
    )  # fmt: skip
    parser.add_argument(
        "--free", action="append", default=[], metavar="NAME",
        help="transfers of communicators that take no time",
    )  # fmt: skip
    add_time_arguments(parser)
    add_json_argument(parser)
