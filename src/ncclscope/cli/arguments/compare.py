"""The arguments of `ncclscope compare`."""

import argparse

from ncclscope.cli.arguments.engine import add_engine_argument
from ncclscope.cli.arguments.equal_jobs import add_equal_jobs_argument
from ncclscope.cli.arguments.json_output import add_json_argument
from ncclscope.cli.arguments.selection import add_time_arguments, join_negative_times

BETWEEN = "\0"  # stands for `--`, which argparse drops; nobody can give it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which captures to compare, and how to show it."""
    parser.usage = "ncclscope compare [OPTION]… A B | A… -- B… | --history DIR B"
    parser.add_argument(
        "captures", nargs="+", metavar="A B", help="captures: directories or globs, one of each job"
    )
    add_json_argument(parser)
    parser.add_argument(
        "--gate", action="store_true", help="exit with 3 if B is slower, 5 if nothing was compared"
    )
    parser.add_argument(
        "--comm", action="append", metavar="NAME",
        help="list only kinds of calls of this communicator; tp* works, too",
    )  # fmt: skip
    parser.add_argument(
        "--op", action="append", metavar="NAME", help="list only kinds of calls of this function"
    )
    parser.add_argument(
        "--history", metavar="DIR", help="compare one job with the last equal jobs of a history"
    )
    add_equal_jobs_argument(parser)
    add_time_arguments(parser)
    add_engine_argument(parser)


def preprocess_argv(words: list[str]) -> list[str]:
    """The words with a mark instead of `--`, which separates runs of A from runs of B."""
    return [BETWEEN if word == "--" else word for word in join_negative_times(words)]
