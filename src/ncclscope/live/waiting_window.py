"""The account of waiting of the last part of a running job, in a process of its own: `python -m
ncclscope.live.waiting_window` reads a request on stdin and prints an answer, both JSON.

So what it needs goes back to the system when it ends, and neither numpy's work nor a file system
that hangs holds up `serve`. It reads the ends of logs alone: its memory and time do not depend on
how long the job runs. What it says is report's account (analysis/waiting), of a window of time.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.account import account_between
from ncclscope.analysis.waiting.kernels import is_timed
from ncclscope.analysis.waiting.origins import WaitingAccount
from ncclscope.arrays.types import Bools
from ncclscope.capture.layout import SLOT_BYTES
from ncclscope.capture.segment import map_file, open_file
from ncclscope.errors import FormatError, NcclscopeError
from ncclscope.model.model import Model
from ncclscope.model.recent_model import recent_model
from ncclscope.model.schema import NONE

_ON_DISK_NS = 3_000_000_000  # an event is on disk 2 s after it happened: recorder.md
_CUT_SHARE = 0.05  # of what was read: waits there began before
_TIMED_SHARE = 0.5  # of the operations; with fewer, most waiting is not seen
_FIRST_FILE = "log.000000"
_NICE = 19
_LONGEST_CPU_S = 60
TRANSFER, STRUCTURE, START_UP, CLOCKS, UNKNOWN = (
    "transfer", "structure", "start-up", "clock error", "unknown",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class WindowAccount:
    """The account of one window; times are wall-clock time of the job's first host."""

    since_ns: int
    until_ns: int
    caused_ns: dict[int, int] = field(default_factory=dict)  # by rank: waiting that began on it
    idle_ns: dict[int, int] = field(default_factory=dict)  # of that, for want of work to hand out
    origins_ns: dict[str, int] = field(default_factory=dict)  # all waiting, by where it began


def account_window(
    capture: Path, newest: Mapping[Path, int], since_ns: int | None
) -> WindowAccount | str:
    """The account from `since_ns` (wall clock) on, or from where logs were cut, until where all is
    on disk; or why there is none. `newest`: how many slots of each process are read at most.
    """
    cut = {folder.name for folder, slots in newest.items() if is_cut(folder, slots)}
    model = recent_model(capture, newest)
    if len(model.processes) < len(newest):
        return "files of a process cannot be read"
    return account_of_model(model, cut, since_ns)


def account_of_model(
    model: Model, cut: set[str], since_ns: int | None, until_ns: int | None = None
) -> WindowAccount | str:
    """The same of a model; `cut`: folders of processes whose beginning is not in it. `until_ns`:
    where it is known until when all is on disk.
    """
    run, wall_ns = Run(model), model.realtime_offset_ns
    timed = is_timed(run)
    since_ns = None if since_ns is None else since_ns - wall_ns
    if timed.sum() < _TIMED_SHARE * max(int(run.current.sum()), 1):
        return "most operations have no GPU times"
    first_ns = _first_starts(run, timed)
    recorded = _recorded_times(model)
    if len(first_ns) < 2:
        return "fewer than two ranks have operations"
    if until_ns is None:
        until_ns = min(end for _, end in recorded) - _ON_DISK_NS
    else:
        until_ns -= wall_ns
    begin_ns = _begin_ns(model, cut, since_ns, until_ns, first_ns)
    since = min(first_ns.values()) if begin_ns is None else begin_ns
    if until_ns <= since:
        return "nothing new was recorded"
    found = account_between(model, begin_ns, until_ns)
    ranks = np.unique(np.asarray(model.tables["members"]["global_rank"]))
    caused = dict.fromkeys(ranks[ranks != NONE].tolist(), 0)
    times = since + wall_ns, until_ns + wall_ns
    if found is None:  # nobody called anything, or nobody waited
        return WindowAccount(*times, caused)
    caused |= {row.rank: row.origin_ns for row in found.account.ranks}
    idle = {rank: caused[rank] for rank in found.idle_roots}
    return WindowAccount(*times, caused, idle, waiting_by_origin(found.account))


def waiting_by_origin(account: WaitingAccount) -> dict[str, int]:
    """All waiting by where it began; the sum is the account's total."""
    sums: dict[str, int] = {}
    for origin in account.origins:
        sums[origin.kind] = sums.get(origin.kind, 0) + origin.waiting_ns
    return sums | {
        STRUCTURE: account.structure_ns,
        START_UP: account.start_up_ns,
        CLOCKS: account.below_clock_error_ns,
        UNKNOWN: account.unknown_ns,
    }


def _begin_ns(
    model: Model, cut: set[str], since_ns: int | None, until_ns: int, first_ns: dict[int, int]
) -> int | None:
    """When the window begins; None: with the run."""
    limits = [] if since_ns is None else [since_ns]
    if any(row.paused for row in model.processes):
        limits += [begin for begin, _ in _recorded_times(model)]
    own = [ns for process, ns in first_ns.items() if model.processes[process].folder in cut]
    if own:
        begin = max(own)
        limits.append(begin + int(_CUT_SHARE * max(until_ns - begin, 0)))
    return max(limits, default=None)


def _recorded_times(model: Model) -> list[tuple[int, int]]:
    """By process the last time from when until when it recorded all calls: until the last of its
    clock pairs, or a pause.
    """
    windows = model.tables["windows"]
    columns = (np.asarray(windows[name]).tolist() for name in ("process", "start_ns", "end_ns"))
    last = dict.fromkeys(range(len(model.processes)), (0, 0))
    for number, row in enumerate(model.processes):
        if not row.paused:
            began_ns = row.started_ns - model.realtime_offset_ns
            last[number] = began_ns, began_ns + row.lived_ns
    for process, begin, end in sorted(zip(*columns, strict=True)):
        last[process] = begin, end
    return list(last.values())


def _first_starts(run: Run, timed: Bools) -> dict[int, int]:
    """By process when its first operation on record began."""
    process = np.asarray(run.operations["process"])[timed]
    start = np.asarray(run.operations["start_ns"], np.int64)[timed]
    least = np.full(len(run.model.processes), np.iinfo(np.int64).max)
    np.minimum.at(least, process, start)
    return {number: int(least[number]) for number in np.unique(process).tolist()}


def is_cut(folder: Path, slots: int) -> bool:
    """Whether not all of a process's log is read: it is longer, its beginning made room, or one of
    its files is damaged.
    """
    files = sorted(folder.glob("log.*"))
    if len(files) > 2 or not files or files[0].name != _FIRST_FILE:
        return True
    try:
        return any(len(open_file(path, map_file)[1]) > slots * SLOT_BYTES for path in files)
    except (FormatError, OSError):
        return True


def main() -> None:
    """Answers the request on stdin."""
    os.nice(_NICE)  # the job goes first
    resource.setrlimit(resource.RLIMIT_CPU, (_LONGEST_CPU_S, _LONGEST_CPU_S))
    request = json.load(sys.stdin)
    try:
        newest = {Path(folder): slots for folder, slots in request["newest"].items()}
        found = account_window(Path(request["capture"]), newest, request["since_ns"])
    except (NcclscopeError, OSError, MemoryError) as error:
        found = getattr(error, "strerror", None) or str(error) or type(error).__name__
    answer = {"why": found} if isinstance(found, str) else asdict(found)
    print(json.dumps({**answer, "cpu_s": time.process_time()}))


if __name__ == "__main__":
    main()
