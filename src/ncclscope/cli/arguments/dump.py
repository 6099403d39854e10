"""The arguments of `ncclscope dump`."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which capture to print, which events or samples of it, and how."""
    parser.add_argument(
        "capture", nargs="?", metavar="CAPTURE", help="directory or glob (default: the newest here)"
    )
    parser.add_argument(
        "--json", action="store_true", help="one JSON object per event; the page below has keys"
    )
    parser.add_argument(
        "--event", action="append", metavar="NAME", help="only these events, by NCCL's name"
    )
    parser.add_argument(
        "--rank", action="append", metavar="RANKS", help="only these global ranks, as in 0,4-7"
    )
    parser.add_argument(
        "--system", action="store_true", help="samples of the machine (run --system), not events"
    )
    parser.add_argument(
        "--host", action="append", metavar="HOST", help="with --system: only these hosts"
    )
    parser.add_argument(
        "--device", action="append", metavar="NAME",
        help="with --system: only these devices: a GPU's number, eth0, mlx5_0/1, host",
    )  # fmt: skip
