"""The arguments of `ncclscope doctor`."""

import argparse

from ncclscope.cli.arguments.json_output import add_json_argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which process to examine, and how to show it."""
    parser.add_argument("--pid", type=int, help="look at the NCCL that this process has loaded")
    add_json_argument(parser)
