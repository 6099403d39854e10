"""The arguments of `ncclscope diagnose`."""

import argparse

from ncclscope.cli.arguments.engine import add_engine_argument
from ncclscope.cli.arguments.equal_jobs import add_equal_jobs_argument
from ncclscope.cli.arguments.json_output import add_json_argument
from ncclscope.cli.arguments.selection import add_time_arguments, join_negative_times
from ncclscope.diagnose import SEVERITIES

preprocess_argv = join_negative_times


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which capture, against what, in which form."""
    parser.add_argument(
        "capture", nargs="?", metavar="CAPTURE", help="directory or glob (default: the newest here)"
    )
    add_json_argument(parser)
    parser.add_argument(
        "--baseline", metavar="FILE", help="bandwidths to expect: JSON of bench, or nccl-tests -J"
    )
    parser.add_argument(
        "--history", metavar="DIR",
        help="also compare with earlier jobs of a history: slower, hosts and links late again",
    )  # fmt: skip
    add_equal_jobs_argument(parser)
    parser.add_argument(
        "--fail-on",
        choices=SEVERITIES,
        metavar="SEVERITY",
        help="exit with 3 on a finding of that severity or above: info, warning, critical",
    )
    parser.add_argument(
        "--comm", action="append", metavar="NAME",
        help="only findings that name this communicator; tp* works, too",
    )  # fmt: skip
    parser.add_argument(
        "--rank", action="append", metavar="RANKS",
        help="only findings that name one of these global ranks, as in 0,4-7",
    )  # fmt: skip
    add_time_arguments(parser)
    add_engine_argument(parser)
