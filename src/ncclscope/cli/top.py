"""`ncclscope top`."""

import argparse
import os
import signal
import sys
import threading
import time
from contextlib import suppress

from ncclscope.cli.messages import print_message
from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.humanize import printable
from ncclscope.live.job_follower import JobFollower, check_patterns
from ncclscope.live.top_model import RateHistory, top_data
from ncclscope.live.top_tables import screen_lines

_TERMINAL_S = 5.0
_ONCE_S = 2.5  # rates need two heartbeats, which are a second apart


def run(arguments: argparse.Namespace) -> int:
    """Shows jobs until the user quits, or once."""
    check_patterns(arguments.captures)
    if not 0.1 <= arguments.interval <= 86400:
        raise UsageError("--interval must be at least 0.1 s and at most a day")
    follower = JobFollower(tuple(arguments.captures), all_hosts=True)
    if arguments.once:
        return _once(follower)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("cannot show a screen: this is no terminal", "Try `ncclscope top --once`")
    try:
        from ncclscope.live.top_screen import Top
    except ImportError as error:
        message = f"cannot show a screen: {error.name or 'textual'} is not installed"
        hint = "Try `pip install textual`, or `ncclscope top --once`"
        raise NcclscopeError(message, hint) from None
    screen = Top(follower, arguments.interval)

    def thread_failed(failed: threading.ExceptHookArgs) -> None:
        """The thread that writes to the terminal has no other way to say that it cannot."""
        if isinstance(failed.exc_value, OSError):
            screen.end(str(failed.exc_value))
        else:
            threading.__excepthook__(failed)

    threading.excepthook = thread_failed
    signal.signal(signal.SIGINT, signal.default_int_handler)  # asyncio has its own way
    screen.run()
    threading.excepthook = threading.__excepthook__
    if screen.terminal_failure:
        _wait_for_terminal()
        raise NcclscopeError(f"the terminal cannot be used any more: {screen.terminal_failure}")
    return 0


def _wait_for_terminal() -> None:
    """Waits until the terminal can be written again, so that the user can read why the screen
    ended; not for long, because it may be gone for good.
    """
    end = time.monotonic() + _TERMINAL_S
    while time.monotonic() < end:
        with suppress(OSError):
            os.write(2, b"\n")
            return
        time.sleep(0.1)


def _once(follower: JobFollower) -> int:
    history = RateHistory()
    follower.read()
    data = top_data(list(follower.jobs.values()), history)
    end = time.monotonic() + _ONCE_S
    while data.jobs and time.monotonic() < end:
        time.sleep(0.5)
        follower.read()
        data = top_data(list(follower.jobs.values()), history)
    for path in follower.unreadable:
        print_message(f"ncclscope: {printable(str(path))} cannot be read and is left out")
    print("\n".join(screen_lines(data)))
    return 0
