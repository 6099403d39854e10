"""The arguments of `ncclscope import`."""

import argparse
from pathlib import Path

from ncclscope.ingest.format_names import FORMAT_NAMES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which files, in which format, and where to."""
    parser.add_argument(
        "files", nargs="+", metavar="PATH", type=Path,
        help="files, or directories with them; compressed ones (.gz), too",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", required=True, metavar="DIR", type=Path, help="the import: a directory"
    )
    parser.add_argument(
        "--from", dest="form", choices=FORMAT_NAMES, metavar="FORMAT",
        help=f"{', '.join(FORMAT_NAMES)} (default: what the files look like)",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="replace an import that is there")
