"""Work in several threads, also where no thread starts.

`threading.Thread.start` waits until its thread says that it runs. A thread that finds no memory for
its first step never says so: `start` waits for ever (CPython's issue 140746), in concurrent.futures
with a lock of the whole process in hand. Threads here say nothing. Work that none of them has taken
up is done by whoever waits for it, so nothing waits for a thread that is not there.
"""

import _thread
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, TypeVar, cast

# A thread that has not begun by then is taken for one that never will. One that begins later takes
# up what is left.
_BEGINS_WITHIN_S = 1.0

Item = TypeVar("Item")
Result = TypeVar("Result")


class Task(Generic[Result]):
    """Something to do, once, by whoever comes first."""

    __slots__ = ("_do", "_done", "_error", "_free", "_result", "_threads")

    def __init__(self, do: Callable[[], Result], threads: "Threads") -> None:
        self._do, self._threads = do, threads
        self._free, self._done = _thread.allocate_lock(), _thread.allocate_lock()
        self._done.acquire()
        self._result: Result | None = None
        self._error: BaseException | None = None

    def take(self) -> bool:
        """Whether nobody has taken it up before."""
        return self._free.acquire(blocking=False)

    def run(self) -> None:
        """Does it, unless somebody has taken it up. Needs no memory of its own: whoever waits
        learns of the end in any case.
        """
        if not self.take():
            return
        try:
            self._result = self._do()
        except BaseException as error:
            self._error = error
        finally:
            self._done.release()

    @property
    def is_done(self) -> bool:
        """Whether its result is there."""
        return not self._done.locked()

    def result(self) -> Result:
        """What was returned; raises what was raised. It is done here if no thread takes it up."""
        while not self.is_done:
            if self._threads.is_idle:
                self.run()
            if self._done.acquire(timeout=_BEGINS_WITHIN_S):
                self._done.release()
        if self._error is not None:
            raise self._error
        return cast(Result, self._result)


class Threads:
    """Does tasks in up to so many threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = _thread.allocate_lock()
        self._busy = _thread.allocate_lock()  # held while a thread runs
        self._waiting: deque[Task[Any]] = deque()
        self._running = 0  # threads that have begun, and not ended
        self._started = 0  # threads that have not begun
        self._started_at = 0.0

    def submit(self, do: Callable[..., Result], *arguments: Any, **named: Any) -> Task[Result]:
        """Has a thread do something."""
        task = Task(lambda: do(*arguments, **named), self)
        with self._lock:
            self._waiting.append(task)
        self._start_one()
        return task

    def map(self, do: Callable[..., Result], *items: Iterable[Any]) -> list[Result]:
        """`do(item)` of each item, or of each tuple of items; raises what the first one raised."""
        tasks = [self.submit(do, *arguments) for arguments in zip(*items, strict=True)]
        return [task.result() for task in tasks]

    @property
    def is_idle(self) -> bool:
        """Whether no thread will take up what waits: none runs, and none begins any more."""
        with self._lock:
            return not self._running and not self._may_begin()

    def _may_begin(self) -> bool:
        return bool(self._started) and time.monotonic() - self._started_at < _BEGINS_WITHIN_S

    def _start_one(self) -> None:
        with self._lock:
            if not self._may_begin():
                self._started = 0
            if self._running + self._started >= self._most:
                return
            self._started += 1
            self._started_at = time.monotonic()
        with suppress(RuntimeError, MemoryError):
            _thread.start_new_thread(self._work, ())
            return
        with self._lock:
            self._started = max(self._started - 1, 0)

    def _work(self) -> None:
        with self._lock:
            self._started = max(self._started - 1, 0)
            if not self._running:
                self._busy.acquire()
            self._running += 1
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    if not self._running:
                        self._busy.release()
                    return
                task = self._waiting.popleft()
            task.run()

    def __enter__(self) -> "Threads":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Returns when nothing runs any more. What no thread has taken up is left out."""
        with self._lock:
            self._waiting.clear()
        with self._busy:
            pass


def in_threads(do: Callable[[Item], Result], items: Sequence[Item], most: int) -> list[Result]:
    """`do(item)` of each item in up to so many threads; of one item, in this thread."""
    if len(items) < 2 or most < 2:
        return [do(item) for item in items]
    with Threads(most) as threads:
        return threads.map(do, items)
