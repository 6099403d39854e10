"""The option that says which machines read a capture."""

import argparse

HERE = "here"


def add_engine_argument(parser: argparse.ArgumentParser) -> None:
    """Adds --on."""
    parser.add_argument(
        "--on",
        default=HERE,
        metavar="WHERE",
        help="what reads the capture: here (default), slurm or slurm:WORKERS, or a Dask cluster, "
        "as tcp://HOST:PORT or file:SCHEDULER.json",
    )
