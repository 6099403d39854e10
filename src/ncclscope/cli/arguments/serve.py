"""The arguments of `ncclscope serve`."""

import argparse
from pathlib import Path

from ncclscope.cli.arguments.system import add_system_arguments

_PORT = 9479


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which jobs to follow, and where their metrics go."""
    parser.add_argument(
        "captures", nargs="*", metavar="CAPTURE",
        help="directories, or directories of captures, or globs (default: all running jobs of "
        "this user on this host)",
    )  # fmt: skip
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=_PORT, help=f"port ({_PORT}; 0: any)")
    parser.add_argument(
        "--textfile", type=Path, metavar="DIR",
        help="write DIR/ncclscope-*.prom for node_exporter instead of listening",
    )  # fmt: skip
    parser.add_argument(
        "--all-hosts", action="store_true",
        help="also processes of other hosts, for captures on a shared file system (default: each "
        "host serves its own)",
    )  # fmt: skip
    parser.add_argument("--once", action="store_true", help="print the metrics once and end")
    parser.add_argument(
        "--interval", type=float, default=1.0, metavar="SECONDS", help="between readings (1)"
    )
    parser.add_argument(
        "--series", type=int, default=500, metavar="N",
        help="most series of a job on this host; the rest is called `other` (500)",
    )  # fmt: skip
    parser.add_argument(
        "--inspector-names", action="store_true",
        help="also NCCL Inspector's metric names, for dashboards that were made for it",
    )  # fmt: skip
    parser.add_argument(
        "--otlp", metavar="URL", help="also send the metrics to an OpenTelemetry collector"
    )
    parser.add_argument(
        "--otlp-interval", type=float, default=15.0, metavar="SECONDS",
        help="between two of these (15)",
    )  # fmt: skip
    for kind, what in (("hang", "a job hangs"), ("straggler", "a rank makes the others wait")):
        parser.add_argument(
            f"--on-{kind}", action="append", default=[], metavar="COMMAND",
            help=f"run this when {what}; it reads JSON on stdin",
        )  # fmt: skip
    parser.add_argument(
        "--webhook", action="append", default=[], metavar="URL",
        help="POST that JSON to this address; @FILE has the address in a file",
    )  # fmt: skip
    parser.add_argument(
        "--straggler-after", type=float, default=30.0, metavar="SECONDS",
        help="how long a rank must be late before hooks are called (30)",
    )  # fmt: skip
    parser.add_argument(
        "--hook-pause", type=float, default=600.0, metavar="SECONDS",
        help="least time between two calls for the same job and reason (600)",
    )  # fmt: skip
    add_system_arguments(parser)
