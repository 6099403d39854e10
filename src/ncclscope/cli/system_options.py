"""Checks of the options that sample GPUs, network and host."""

import argparse

from ncclscope.errors import UsageError

_SHORTEST_S, _LONGEST_S = 0.05, 3600.0


def check_system(arguments: argparse.Namespace) -> None:
    """Raises if these options have impossible values."""
    if not _SHORTEST_S <= arguments.system_interval <= _LONGEST_S:
        least, most = _SHORTEST_S, _LONGEST_S
        raise UsageError(f"--system-interval must be {least:g} to {most:g} s")
    if not arguments.system_root.is_dir():
        raise UsageError(f"cannot read counters below {arguments.system_root}: no such directory")
