"""The arguments of `ncclscope status`."""

import argparse

from ncclscope.cli.arguments.json_output import add_json_argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which capture to judge, how to show it, and how often."""
    parser.add_argument(
        "capture", nargs="?", metavar="CAPTURE", help="directory or glob (default: the newest here)"
    )
    parser.add_argument(
        "--stacks", action="store_true",
        help="also the Python and native stacks of processes on this host, by py-spy",
    )  # fmt: skip
    add_json_argument(parser)
    parser.add_argument(
        "--watch",
        nargs="?",
        const="",
        metavar="SECONDS",
        help="again and again (default: every 2 s) until no process is alive",
    )
