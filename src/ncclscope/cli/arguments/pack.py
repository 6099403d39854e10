"""The arguments of `ncclscope pack`."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which capture to pack, where the archive goes, and what is replaced."""
    parser.add_argument(
        "capture", nargs="?", metavar="CAPTURE", help="directory or glob (default: the newest here)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="(default: CAPTURE.tar.gz here)")
    parser.add_argument(
        "--replace-hosts", action="store_true", help="host1, host2, … for host names"
    )
