"""The arguments of `ncclscope run`."""

import argparse

from ncclscope.cli.arguments.recording import add_recording_arguments
from ncclscope.cli.arguments.system import add_system_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the recording options and the command."""
    add_recording_arguments(parser)
    parser.add_argument(
        "--nccl-debug",
        metavar="LEVEL[:SUBSYS]",
        help="NCCL's own log into the capture, e.g. INFO:INIT,NET",
    )
    add_system_arguments(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="no summary at the end")
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="-- COMMAND …",
        help="torchrun, mpirun, srun, …",
    )
