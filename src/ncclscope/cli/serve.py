"""`ncclscope serve`."""

import argparse
import signal
import sys
import threading
from pathlib import Path

from ncclscope.cli.system_options import add_system_arguments, check_system
from ncclscope.errors import UsageError
from ncclscope.humanize import printable
from ncclscope.live.exposition import TEXT
from ncclscope.live.job_follower import JobFollower, check_patterns
from ncclscope.live.metrics_server import MetricsCache, MetricsServer, start_server, write_textfiles
from ncclscope.live.system_metrics import Machines

_PORT = 9479


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which jobs, and where to give them away."""
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
    add_system_arguments(parser)


def _check(arguments: argparse.Namespace) -> None:
    check_patterns(arguments.captures)
    check_system(arguments)
    if arguments.interval < 0.1:
        raise UsageError("--interval must be at least 0.1 s")
    if arguments.series < 200:
        raise UsageError("--series must be at least 200: a job needs them for itself")
    if arguments.textfile and not arguments.textfile.is_dir():
        message = f"cannot write metrics to {arguments.textfile}: no such directory"
        raise UsageError(message, "Give the directory of --collector.textfile.directory")


def run(arguments: argparse.Namespace) -> int:
    """Reads until it is told to stop."""
    _check(arguments)
    following = JobFollower(tuple(arguments.captures), arguments.all_hosts)
    machines = None
    if arguments.system:
        root, interval_s = arguments.system_root, arguments.system_interval
        machines = Machines(root, interval_s, arguments.all_hosts)
    reader = MetricsCache(following, arguments.series, arguments.inspector_names, machines)
    reader.read()
    for path in following.unreadable:
        print(f"ncclscope: {printable(str(path))} cannot be read and is left out", file=sys.stderr)
    if arguments.once:
        sys.stdout.write(reader.texts[TEXT].decode())
        return 0
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if arguments.textfile:
        print(f"ncclscope: writing {arguments.textfile}/ncclscope-*.prom", file=sys.stderr)
        _write_until(stop, arguments, reader)
        return 0
    server = _start(arguments, reader)
    print(f"ncclscope: {server.url}/metrics", file=sys.stderr, flush=True)
    while not stop.wait(arguments.interval):
        reader.read()
    return 0


def _write_until(
    stop: threading.Event, arguments: argparse.Namespace, reader: MetricsCache
) -> None:
    """Files instead of answers. A disk that is full for a while must not end it."""
    written: set[Path] = set()
    trouble = ""
    while True:
        try:
            written = write_textfiles(arguments.textfile, reader, written, arguments.interval)
            told, trouble = trouble, ""
        except OSError as error:
            told, trouble = trouble, error.strerror or type(error).__name__
        if trouble != told:
            now = (
                f"cannot write there: {trouble}. It goes on trying" if trouble else "it works again"
            )
            print(f"ncclscope: {arguments.textfile}: {now}", file=sys.stderr, flush=True)
        if stop.wait(arguments.interval):
            break
        reader.read()
    for path in written:
        path.unlink(missing_ok=True)


def _start(arguments: argparse.Namespace, reader: MetricsCache) -> MetricsServer:
    try:
        return start_server(arguments.host, arguments.port, reader)
    except (OSError, OverflowError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        message = f"cannot listen on {arguments.host}:{arguments.port}: {cause}"
        hint = "Give another --port, or --port 0 for any; --host is an address of this machine"
        raise UsageError(message, hint) from None
