"""Ctrl-C, which ends a verb even where a library swallows it.

Python raises KeyboardInterrupt wherever the program happens to be. In a destructor or a callback it
is dropped; while DuckDB or numpy look for optional modules it becomes another error, or none. So it
is raised again every half second until the verb ends, but not while `finally` and `with` clean up.
"""

import _thread
import os
import signal
import sys
import time
from contextlib import suppress

TYPE_CHECKING = False  # not typing's: see ncclscope/__init__.py
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

INTERRUPTED = 130  # the exit code, 128 + SIGINT
_AGAIN_S = 0.5


class Interrupts:
    """Within the block, Ctrl-C is raised until it arrives."""

    def __init__(self) -> None:
        self.received = False
        self._again = False  # the next signal is not the user's
        self._ended = False
        self._thread_id = _thread.get_ident()
        self._unraisable = sys.unraisablehook

    def __enter__(self) -> "Interrupts":
        # Another handler, as that of tests, or another thread: they decide.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            with suppress(ValueError):
                signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        sys.unraisablehook = self._unraisable
        if signal.getsignal(signal.SIGINT) == self._interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _interrupt(self, number: int, frame: "FrameType | None") -> None:
        again, self._again = self._again, False
        if self._ended or (again and _is_cleaning_up(sys.exc_info()[1])):
            return
        if not self.received:
            self.received = True
            sys.unraisablehook = self._report_others
            with suppress(RuntimeError):  # no room for a thread
                _thread.start_new_thread(self._repeat, ())
        raise KeyboardInterrupt

    def _repeat(self) -> None:
        while not self._ended:
            time.sleep(_AGAIN_S)
            if not self._ended and signal.getsignal(signal.SIGINT) == self._interrupt:
                self._again = True
                signal.pthread_kill(self._thread_id, signal.SIGINT)

    def _report_others(self, unraisable: "Any") -> None:
        """An interrupt in a destructor is not reported: it comes again."""
        if unraisable.exc_type is not KeyboardInterrupt:
            self._unraisable(unraisable)


def _is_cleaning_up(error: BaseException | None) -> bool:
    """Whether an interrupt is on its way up, in `finally`, `with` or the end of a generator."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt | GeneratorExit):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def leave_at_once(code: int) -> None:
    """Ends this process without the seconds that Python may need to free a large model."""
    import atexit

    with suppress(Exception):
        atexit._run_exitfuncs()  # ends worker processes, removes temporary directories
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)
