"""The arguments of `ncclscope timeline`."""

import argparse
from pathlib import Path

from ncclscope.cli.arguments.selection import add_selection_arguments, join_negative_times
from ncclscope.web.limits import MOST_BARS

preprocess_argv = join_negative_times


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which capture, and where its page is served."""
    parser.add_argument(
        "capture", nargs="?", metavar="CAPTURE", help="directory or glob (default: the newest here)"
    )
    parser.add_argument(
        "--host", default="127.0.0.1",
        help="address to listen on; 0.0.0.0: all of this machine's (default: this machine alone)",
    )  # fmt: skip
    parser.add_argument("--port", type=int, default=0, help="port (default: any that is free)")
    parser.add_argument("--no-open", action="store_true", help="do not open a browser")
    parser.add_argument(
        "--html", type=Path, metavar="FILE",
        help=f"write one file that needs no server, of at most {MOST_BARS:,} bars, and end; the "
        "options below choose a part of it, and of --perfetto",
    )  # fmt: skip
    parser.add_argument(
        "--perfetto", action="store_true",
        help="show the capture, or a part of it, in a local Perfetto UI",
    )  # fmt: skip
    add_selection_arguments(parser)
