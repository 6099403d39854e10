"""The arguments of `ncclscope ls`."""

import argparse

from ncclscope.cli.arguments.json_output import add_json_argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds where to look, and how to show it."""
    parser.add_argument("directory", nargs="?", default=".", metavar="DIR", help="(default: here)")
    add_json_argument(parser)
