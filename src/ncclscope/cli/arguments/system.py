"""The options that `run` and `serve` share: sampling of GPUs, network and host."""

import argparse
from pathlib import Path

_INTERVAL_S = 1.0


def add_system_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --system, --system-interval and --system-root."""
    parser.add_argument(
        "--system", action="store_true",
        help="also sample GPUs, network and host, once a second",
    )  # fmt: skip
    parser.add_argument(
        "--system-interval", type=float, default=_INTERVAL_S, metavar="SECONDS",
        help="between samples of --system (1)",
    )  # fmt: skip
    parser.add_argument(
        "--system-root", type=Path, default=Path("/"), metavar="DIR",
        help="where the host's /proc and /sys are, for containers that have them elsewhere (/)",
    )  # fmt: skip
