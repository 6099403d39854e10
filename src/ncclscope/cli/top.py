"""`ncclscope top`."""

import argparse
import sys
import time

from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.humanize import printable
from ncclscope.live.job_follower import JobFollower, check_patterns
from ncclscope.live.top_model import Past, overview
from ncclscope.live.top_tables import plain

_ONCE_S = 2.5  # two heartbeats: without them there are no rates


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which jobs, and how often."""
    parser.add_argument(
        "captures", nargs="*", metavar="CAPTURE",
        help="directories, or directories of captures, or globs (default: all running jobs of "
        "this user on this host)",
    )  # fmt: skip
    parser.add_argument(
        "--interval", type=float, default=1.0, metavar="SECONDS", help="between readings (1)"
    )
    parser.add_argument(
        "--once", action="store_true", help="print the first screen as text and end"
    )


def run(arguments: argparse.Namespace) -> int:
    """Shows jobs until it is told to stop."""
    check_patterns(arguments.captures)
    if arguments.interval < 0.1:
        raise UsageError("--interval must be at least 0.1 s")
    following = JobFollower(tuple(arguments.captures), all_hosts=True)
    if arguments.once:
        return _once(following)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("cannot show a screen: this is no terminal", "Try `ncclscope top --once`")
    try:
        from ncclscope.live.top_screen import Top
    except ImportError as error:
        message = f"cannot show a screen: {error.name or 'textual'} is not installed"
        hint = "Try `pip install textual`, or `ncclscope top --once`"
        raise NcclscopeError(message, hint) from None
    Top(following, arguments.interval).run()
    return 0


def _once(following: JobFollower) -> int:
    past = Past()
    following.read()
    now = overview(list(following.jobs.values()), past)
    end = time.monotonic() + _ONCE_S
    while now.jobs and time.monotonic() < end:
        time.sleep(0.5)
        following.read()
        now = overview(list(following.jobs.values()), past)
    for path in following.unreadable:
        print(f"ncclscope: {printable(str(path))} cannot be read and is left out", file=sys.stderr)
    print("\n".join(plain(now)))
    return 0
