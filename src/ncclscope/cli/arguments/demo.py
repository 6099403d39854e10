"""The arguments of `ncclscope demo`."""

import argparse

from ncclscope.documentation import page


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds where the capture goes, and which job is run."""
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="the capture (default: ./ncclscope-demo-<time>)"
    )
    parser.add_argument(
        "--scenario",
        metavar="FILE",
        help=f"another job, as {page('simulation.md')} describes it (default: a late rank)",
    )
