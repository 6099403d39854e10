"""When everything would have happened, had edges been of other lengths.

Each event happens after all that it depends on. The edge that it followed counts with its length.
Other dependencies that were not refuted count with the least gap seen at that position, and no
more than the measured one: so a replay with measured lengths gives the measured times, exactly.
Dependencies that follow from others are left out, because gaps to them contain what the others
took.
"""

import ctypes

import numpy as np

from ncclscope.analysis.waiting.arrivals import END, START
from ncclscope.analysis.waiting.dependencies import Bytes, operations_for_c
from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.analysis.waiting.own_courses import own_courses
from ncclscope.analysis.waiting.quantiles import quantile_by_group
from ncclscope.arrays import _abi
from ncclscope.arrays.library import address, library, pointer
from ncclscope.arrays.types import Ints
from ncclscope.threads import Threads

_LAUNCHED_AT_ONCE = 0.2  # of the kernels of a position: with more, launches are known
_LEAST_LAUNCHES = 8
_EARLIEST = np.iinfo(np.int64).min >> 2


class Replay:
    """A run that can be replayed with other lengths of its edges."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        kernels, dependencies = waiting.kernels, waiting.dependencies
        self._operations = operations_for_c(kernels, waiting.arrivals, dependencies.position)
        with Threads(1) as threads:  # neither needs the other
            order = threads.submit(np.argsort, waiting.arrivals.events_ns[:, START], kind="stable")
            self._start_after, self._call_after = self._direct()
            self._least_launch = _least_launches(waiting)
            self._order = order.result().astype(np.int32)
        # Partners that are not waited for do not hold a replay back.
        waits_for = waiting.arrivals.waits_for
        own = np.repeat(np.arange(len(kernels)), np.diff(kernels.partner_first))[waits_for]
        self._partner = np.ascontiguousarray(kernels.partner[waits_for])
        self._partner_first = np.searchsorted(own, np.arange(len(kernels) + 1)).astype(np.int64)
        self._courses = own_courses(waiting)
        self.has_hidden_work = bool(len(self._courses.hidden))
        self._meetings = int(kernels.meeting.max(initial=-1)) + 1
        self._early, self._early_ns = _early_calls(waiting)

    def _direct(self) -> tuple[Bytes, Bytes]:
        dependencies, count = self._waiting.dependencies, len(self._waiting.kernels)
        start_all, call_all, start_after, call_after = np.zeros((4, count), np.uint8)
        library().ncclscope_direct_dependencies(
            ctypes.byref(self._operations), ctypes.byref(dependencies.rules),
            pointer(dependencies.possible), pointer(start_all), pointer(call_all),
            pointer(start_after), pointer(call_after),
        )  # fmt: skip
        return start_after, call_after

    def events_ns(self, length_ns: Ints, hidden: bool = False) -> Ints:
        """By kernel its call, start and end, with these lengths of the edges before them. `hidden`:
        work that nothing shows takes as long as it can have taken, else no time.
        """
        courses = self._courses
        own = courses.most_ns if hidden else courses.own_ns
        kernels, dependencies = self._waiting.kernels, self._waiting.dependencies
        length = np.ascontiguousarray(length_ns, np.int64)
        if len(self._early):
            length = length.copy()
            length[self._early] -= self._early_ns
        arrived = np.full(self._meetings + 1, _EARLIEST)
        bound = _abi.Bindings(
            address(dependencies.before), address(dependencies.edge), address(dependencies.back),
            address(dependencies.on_stream),
        )  # fmt: skip
        replay = _abi.Replay(
            address(length), address(courses.event), address(own), address(self._start_after),
            address(self._call_after), address(dependencies.least_gap_ns),
            address(self._least_launch), address(kernels.meeting), address(arrived),
            address(self._partner_first), address(self._partner),
        )  # fmt: skip
        first = kernels.first_of_rank
        upcoming = first.copy()
        events = np.zeros((len(kernels), 3), np.int64)
        library().ncclscope_replay(
            ctypes.byref(self._operations), ctypes.byref(bound), ctypes.byref(replay),
            pointer(self._order), pointer(upcoming), pointer(first), pointer(events),
        )  # fmt: skip
        return events


def _early_calls(waiting: Waiting) -> tuple[Ints, Ints]:
    """Calls that are on record before the end that their host waited for, and by how much: the
    clocks of host and GPU are no better known. Edges have no negative lengths, and a replay that
    made these calls as late as the end would be longer than the run.
    """
    dependencies, time = waiting.dependencies, waiting.time_ns
    calls = 3 * np.flatnonzero(dependencies.edge[::3] == _abi.EDGE_HOST_AFTER_SYNC)
    early_ns = time[dependencies.before[calls]] - time[calls]
    return calls[early_ns > 0], early_ns[early_ns > 0]


def _least_launches(waiting: Waiting) -> Ints:
    """By position how long a launch takes, where nothing else holds the start back."""
    dependencies = waiting.dependencies
    events, position = waiting.arrivals.events_ns, dependencies.position.astype(np.int64)
    took, positions = events[:, START] - events[:, 0], dependencies.positions
    launched = np.flatnonzero(dependencies.edge[START::3] == _abi.EDGE_LAUNCH)
    known = np.bincount(position[launched], minlength=positions)
    all_of = np.bincount(position, minlength=positions)
    # A slow rank is not held back by others, and may be the only one that shows its launches.
    usual_ns = waiting.usual.median_ns[START::3][launched]
    at_usual_speed = np.fmin(took[launched], usual_ns).astype(np.int64)
    usual = quantile_by_group(position[launched], positions, at_usual_speed, 0.25)
    lowest = quantile_by_group(position, positions, took, 0.02)
    few = known < np.maximum(_LEAST_LAUNCHES, _LAUNCHED_AT_ONCE * all_of)
    # Where the host is always far ahead, even the least time to the start is time in a queue.
    anywhere = float(np.quantile(took[launched], 0.25)) if len(launched) else 0.0
    lowest = np.minimum(np.nan_to_num(lowest), anywhere)
    return np.where(few, lowest, np.nan_to_num(usual)).astype(np.int64)


def run_ns(events_ns: Ints) -> int:
    """How long a run is: from its first call to its last end."""
    return int(events_ns[:, END].max() - events_ns[:, 0].min())
