"""The arguments of `ncclscope overhead`."""

import argparse

from ncclscope.cli.arguments.json_output import add_json_argument
from ncclscope.cli.arguments.recording import add_recording_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the recording options, what to measure and how often, and the command."""
    add_recording_arguments(parser, "; here: where captures lie for a moment")
    parser.add_argument(
        "--rounds", type=int, default=10, metavar="N",
        help="each runs the command four to seven times (default: 10, and one before to warm up)",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=float, metavar="S",
        help="a window, for commands that do not end: calls a second are compared",
    )  # fmt: skip
    metric = parser.add_mutually_exclusive_group()
    metric.add_argument(
        "--rate", metavar="REGEX", help="compare a rate that the command prints: the last (number)"
    )
    metric.add_argument("--time", metavar="REGEX", help="compare a time that the command prints")
    parser.add_argument("--plugin", metavar="PATH", help="judge another profiler plugin than ours")
    parser.add_argument(
        "--timeout", type=float, default=3600.0, metavar="S",
        help="longest run of the command (default: 3600)",
    )  # fmt: skip
    add_json_argument(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="no line for each run")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND …")
