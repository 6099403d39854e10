"""The options that `run` and `serve` share: sampling of GPUs, network and host."""

import argparse
from pathlib import Path

from ncclscope.errors import UsageError

_INTERVAL_S = 1.0
_SHORTEST_S, _LONGEST_S = 0.05, 3600.0


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


def check_system(arguments: argparse.Namespace) -> None:
    """Raises if these options have impossible values."""
    if not _SHORTEST_S <= arguments.system_interval <= _LONGEST_S:
        least, most = _SHORTEST_S, _LONGEST_S
        raise UsageError(f"--system-interval must be {least:g} to {most:g} s")
    if not arguments.system_root.is_dir():
        raise UsageError(f"cannot read counters below {arguments.system_root}: no such directory")
