"""The arguments of `ncclscope ctl`."""

import argparse

from ncclscope.nccl.events import EVENTS, MODES

# Calls, operations and kernels; other event types of NCCL's can be switched while a job runs.
_ALWAYS = frozenset(
    ("Coll", "P2p", "KernelCh", "GroupApi", "CollApi", "P2pApi", "CeColl", "CeSync", "CeBatch")
)
OPTIONAL_EVENTS = tuple(name for name in EVENTS if name not in _ALWAYS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to record from now on, on which ranks, and for how long."""
    parser.add_argument(
        "capture", nargs="?", metavar="CAPTURE", help="directory or glob (default: the newest here)"
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--mode", choices=MODES, help="record in this mode")
    what.add_argument("--reset", action="store_true", help="back to what the job started with")
    what.add_argument(
        "--gpu-timing", choices=("sampled", "off"),
        help="of a job that samples GPU times: stop that, or go on",
    )  # fmt: skip
    what.add_argument(
        "--kernels", type=int, metavar="STEPS",
        help="take all CUDA kernels of the next training steps, with PyTorch's profiler",
    )  # fmt: skip
    what.add_argument(
        "--copy-out", action="store_true", help="write the flight recorder to disk now"
    )
    parser.add_argument(
        "--events", metavar="NAMES",
        help="with --mode: only these of NCCL's event types, besides calls, operations and kernels "
        f"({', '.join(OPTIONAL_EVENTS)})",
    )  # fmt: skip
    parser.add_argument("--seconds", type=int, metavar="N", help="with --mode: for this long")
    parser.add_argument("--calls", type=int, metavar="N", help="with --mode: for this many calls")
    parser.add_argument("--rank", metavar="RANKS", help="only these, as in 0,4-7 (default: all)")
