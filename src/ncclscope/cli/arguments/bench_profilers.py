"""The arguments of `ncclscope bench` that compare profilers."""

import argparse

_DEFAULT_ROUNDS = 3


def add_profiler_arguments(group: argparse._ArgumentGroup) -> None:
    """Adds the options that compare profilers."""
    group.add_argument(
        "--compare-profilers", action="store_true",
        help="measure below each profiler: calls recorded, times reported, cost, and what a "
        "SIGKILL takes",
    )  # fmt: skip
    group.add_argument(
        "--profiler", action="append", default=[], metavar="NAME[=PATH.so][,ENV=VALUE…]",
        help="compare this one; may be repeated (default: all that are installed); list: show them",
    )  # fmt: skip
    group.add_argument(
        "--rounds", type=int, default=_DEFAULT_ROUNDS, metavar="N",
        help=f"runs below each profiler, in random order (default: {_DEFAULT_ROUNDS})",
    )  # fmt: skip
    group.add_argument(
        "--profiler-output", metavar="DIR",
        help="keep the profilers' own files there; with several hosts, a directory that all share",
    )  # fmt: skip
    group.add_argument("--csv", metavar="FILE", help="the comparison's tables as CSV")
    group.add_argument(
        "--from", dest="comparison", metavar="FILE",
        help="show a comparison that --save wrote, instead of measuring",
    )  # fmt: skip


def add_training_arguments(group: argparse._ArgumentGroup) -> None:
    """Adds the options that train a model below each profiler."""
    group.add_argument(
        "--train", choices=("densenet121", "gpt"),
        help="train instead: DenseNet121 under DistributedDataParallel, or a small GPT under FSDP2 "
        "(needs PyTorch)",
    )  # fmt: skip
    group.add_argument("--steps", type=int, default=40, metavar="N", help="(default: 40)")
    group.add_argument(
        "--batch", type=int, default=16, metavar="N", help="samples of a rank (default: 16)"
    )
