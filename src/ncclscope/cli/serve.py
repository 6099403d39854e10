"""`ncclscope serve`."""

import argparse
import math
import signal
import sys
import threading
import time
from pathlib import Path

from ncclscope.cli.messages import print_message
from ncclscope.cli.system_options import check_system
from ncclscope.errors import UsageError
from ncclscope.http.server import listen_error
from ncclscope.humanize import printable
from ncclscope.live.exposition import TEXT
from ncclscope.live.hooks import Hooks, hooks_of
from ncclscope.live.job_follower import JobFollower, check_patterns
from ncclscope.live.metrics_cache import MetricsCache
from ncclscope.live.metrics_server import MetricsServer
from ncclscope.live.otlp import OtlpExport, otlp_endpoint
from ncclscope.live.system_metrics import SystemMetrics
from ncclscope.live.textfiles import write_textfiles
from ncclscope.live.waiting_accounts import WaitingAccounts

_DAY_S = 86400.0


def _check(arguments: argparse.Namespace) -> None:
    check_patterns(arguments.captures)
    check_system(arguments)
    if not 0.1 <= arguments.interval <= _DAY_S:
        raise UsageError("--interval must be at least 0.1 s and at most a day")
    if arguments.series < 200:
        raise UsageError("--series must be at least 200: a job needs them for itself")
    if arguments.otlp:
        otlp_endpoint(arguments.otlp)
    if not 1 <= arguments.otlp_interval <= _DAY_S:
        raise UsageError("--otlp-interval must be at least 1 s and at most a day")
    for name in ("straggler_after", "hook_pause"):
        if not 0 <= getattr(arguments, name) < math.inf:
            raise UsageError(f"--{name.replace('_', '-')} must be a number that is not negative")
    if arguments.textfile and not arguments.textfile.is_dir():
        message = f"cannot write metrics to {arguments.textfile}: no such directory"
        raise UsageError(message, "Give the directory of --collector.textfile.directory")


def run(arguments: argparse.Namespace) -> int:
    """Serves metrics until SIGTERM or Ctrl-C."""
    _check(arguments)
    hooks = _hooks(arguments)
    follower = JobFollower(tuple(arguments.captures), arguments.all_hosts)
    system_metrics = None
    if arguments.system:
        root, interval_s = arguments.system_root, arguments.system_interval
        system_metrics = SystemMetrics(root, interval_s, arguments.all_hosts)
    accounts = WaitingAccounts(arguments.interval)
    cache = MetricsCache(
        follower,
        arguments.series,
        arguments.inspector_names,
        system_metrics,
        interval_s=arguments.interval,
        accounts=None if arguments.once else accounts,
    )
    cache.read()
    for path in follower.unreadable:
        print_message(f"ncclscope: {printable(str(path))} cannot be read and is left out")
    if follower.other_hosts and not follower.jobs:
        hosts = ", ".join(sorted(map(printable, follower.other_hosts))[:3])
        print_message(
            f"ncclscope: no process of this host is in there, but of {hosts}: --all-hosts serves "
            "them",
        )
    idle = arguments.captures and not (follower.jobs or follower.other_hosts)
    if arguments.once:
        sys.stdout.write(cache.texts[TEXT].decode())
        if idle:
            print_message("ncclscope: no job runs there")
        return 0
    otlp = _otlp(arguments, cache)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if arguments.textfile:
        print_message(f"ncclscope: writing {arguments.textfile}/ncclscope-*.prom")
        _write_until(stop, arguments, cache, hooks)
        accounts.close()
        return 0
    server = _start(arguments, cache)
    print_message(f"ncclscope: {server.url}/metrics")
    if idle:
        print_message("           no job runs there now; those that begin are served")
    while not stop.wait(arguments.interval):
        cache.read_again()
        _look(hooks, follower)
    accounts.close()
    server.stop()
    if otlp:
        otlp.stop()
    return 0


def _otlp(arguments: argparse.Namespace, cache: MetricsCache) -> OtlpExport | None:
    """The export that --otlp asks for."""
    if not arguments.otlp:
        return None
    export = OtlpExport(arguments.otlp, arguments.otlp_interval, lambda: cache.series)
    export.start()
    return export


def _hooks(arguments: argparse.Namespace) -> Hooks | None:
    """The hooks that options ask for."""
    hooks = hooks_of(
        arguments.on_hang,
        arguments.on_straggler,
        arguments.webhook,
        arguments.straggler_after,
        arguments.hook_pause,
    )
    if hooks and arguments.once:
        raise UsageError("hooks are called while jobs are followed", "Leave --once out")
    if hooks:
        hooks.start()
    return hooks


def _look(hooks: Hooks | None, follower: JobFollower) -> None:
    if hooks:
        hooks.look(list(follower.jobs.values()), time.monotonic())


def _write_until(
    stop: threading.Event,
    arguments: argparse.Namespace,
    cache: MetricsCache,
    hooks: Hooks | None,
) -> None:
    """Writes files until `stop` is set, and tries again if it fails: disks are full for a while."""
    written: set[Path] = set()
    failure = ""
    while True:
        last_failure, failure = failure, ""
        try:
            written = write_textfiles(arguments.textfile, cache, written, arguments.interval)
        except OSError as error:
            failure = error.strerror or type(error).__name__
        if failure != last_failure:
            now = (
                f"cannot write there: {failure}. It goes on trying" if failure else "it works again"
            )
            print_message(f"ncclscope: {arguments.textfile}: {now}")
        if stop.wait(arguments.interval):
            break
        cache.read_again()
        _look(hooks, cache.follower)
    for path in written:
        path.unlink(missing_ok=True)


def _start(arguments: argparse.Namespace, cache: MetricsCache) -> MetricsServer:
    try:
        server = MetricsServer(arguments.host, arguments.port, cache)
    except (OSError, OverflowError) as error:
        cause = listen_error(error)
        message = f"cannot listen on {arguments.host}:{arguments.port}: {cause}"
        hint = "Give another --port, or --port 0 for any; --host is an address of this machine"
        raise UsageError(message, hint) from None
    server.start()
    return server
