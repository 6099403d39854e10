"""What the recorder's helper thread waits for: a CPU, or the disk."""

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

THREAD_NAME = "ncclscope"  # as the plugin names it
LOOK_S = 0.05  # what the recorder calls a slow call


@dataclass(frozen=True, slots=True)
class Waits:
    """Of a stretch of time; the longest wait at a time, and all of them together."""

    longest_cpu_s: float = 0.0
    all_cpu_s: float = 0.0
    longest_disk_s: float = 0.0
    all_disk_s: float = 0.0

    def with_waits(self, cpu_s: float, disk_s: float, disk_so_far_s: float) -> "Waits":
        """With those of one more look."""
        return Waits(
            max(self.longest_cpu_s, cpu_s),
            self.all_cpu_s + cpu_s,
            max(self.longest_disk_s, disk_so_far_s),
            self.all_disk_s + disk_s,
        )

    def joined(self, other: "Waits") -> "Waits":
        """Of both stretches together."""
        return Waits(
            max(self.longest_cpu_s, other.longest_cpu_s),
            self.all_cpu_s + other.all_cpu_s,
            max(self.longest_disk_s, other.longest_disk_s),
            self.all_disk_s + other.all_disk_s,
        )


def helper_of(pid: int) -> Path | None:
    """The folder of the thread in /proc; None: it has not begun, or is gone."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == THREAD_NAME:
            return task
    return None


def _state(task: Path) -> str:
    """R, S, D …: the word behind the thread's name."""
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


def _cpu_wait_s(task: Path) -> float:
    """Time that it was ready to run and did not, until it last ran."""
    return int((task / "schedstat").read_text().split()[1]) / 1e9


class HelperWatch:
    """Looks at the thread from a thread of its own, until it is left or the process is gone.

    A wait for a CPU is in the kernel's own sum, which grows when the wait is over. A wait for the
    disk is as many looks in a row as the thread was in state D.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._since = Waits()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "HelperWatch":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def take(self) -> Waits:
        """Since the last time that this was called."""
        with self._lock:
            since, self._since = self._since, Waits()
        return since

    def _watch(self) -> None:
        try:
            self._look_on()
        except (FileNotFoundError, ProcessLookupError):
            return  # the process has ended

    def _look_on(self) -> None:
        while (task := helper_of(self._pid)) is None:
            if self._over.wait(LOOK_S):
                return
        waited_s, at_s, in_disk_s = _cpu_wait_s(task), time.monotonic(), 0.0
        while not self._over.wait(LOOK_S):
            now_s, now_waited_s = time.monotonic(), _cpu_wait_s(task)
            disk_s = now_s - at_s if _state(task) == "D" else 0.0
            in_disk_s = in_disk_s + disk_s if disk_s else 0.0
            with self._lock:
                self._since = self._since.with_waits(now_waited_s - waited_s, disk_s, in_disk_s)
            waited_s, at_s = now_waited_s, now_s
