"""The arguments of `ncclscope decode`."""

import argparse

from ncclscope.cli.arguments.engine import add_engine_argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which capture to decode, and whether its logs go."""
    parser.add_argument(
        "capture", nargs="?", metavar="CAPTURE", help="directory or glob (default: the newest here)"
    )
    parser.add_argument(
        "--remove-raw",
        action="store_true",
        help="remove the logs of processes whose decoded files are whole",
    )
    add_engine_argument(parser)
