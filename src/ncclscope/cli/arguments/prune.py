"""The arguments of `ncclscope prune`."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which captures to delete."""
    parser.add_argument("directory", nargs="?", default=".", metavar="DIR", help="(default: here)")
    parser.add_argument(
        "--older-than", metavar="AGE", help="last written longer ago than this: 12h, 7d, 2w"
    )
    parser.add_argument(
        "--keep", metavar="BYTES", help="the oldest, until the rest has this size: 50G"
    )
    parser.add_argument(
        "-n", "--dry-run", action="store_true", help="show what would be deleted, delete nothing"
    )
