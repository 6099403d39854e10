"""The arguments of `ncclscope top`."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which jobs to show, and how often to read them."""
    parser.add_argument(
        "captures", nargs="*", metavar="CAPTURE",
        help="directories, or directories of captures, or globs (default: all running jobs of "
        "this user on this host)",
    )  # fmt: skip
    parser.add_argument(
        "--interval", type=float, default=1.0, metavar="SECONDS", help="between readings (1)"
    )
    parser.add_argument(
        "--once", action="store_true", help="print the first screen as text and end"
    )
