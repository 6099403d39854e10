"""The arguments of `ncclscope salvage`."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which capture to salvage."""
    parser.add_argument(
        "capture",
        nargs="?",
        metavar="DIR",
        help="only this capture (default: all of this user's on this host; as root: of all users)",
    )
