"""The arguments of `ncclscope dashboards`."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds where the files go."""
    parser.add_argument(
        "-o", "--output", default=".", metavar="DIR", help="directory of the files (default: here)"
    )
