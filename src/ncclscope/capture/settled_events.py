"""What is left of a process's events when nothing is open or in flight; calls the compiled pass.

A job that has ended has thousands of such processes, and each event of theirs matters only for a
few sums. Event by event they take three times as long.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.arrays import _abi
from ncclscope.arrays.library import address, library
from ncclscope.arrays.types import Ints
from ncclscope.capture import dtypes, layout
from ncclscope.capture.columns import TickConverter, log_for_c
from ncclscope.capture.slot_log import SlotLog
from ncclscope.capture.tick_clock import TickClock

KINDS = ("CollApi", "P2pApi", "Coll", "P2p")  # places: settled_kind of arrays.h


@dataclass(frozen=True, slots=True)
class SettledEvents:
    """By communicator, in the order in which they were given: how many events there are of each of
    KINDS, and when the last kernel stopped.
    """

    counts: list[list[int]]
    newest_stop_ns: list[int]  # NONE: no kernel has stopped
    newest_ns: int  # of all times of events, and of the clock
    _last: npt.NDArray[np.uint64]
    _took_ns: Ints  # by kernel
    _place: npt.NDArray[np.int32]
    _log: SlotLog  # keeps the slots where they are

    def last_slot(self, place: int, kind: str) -> np.void | None:
        """The last event of a communicator and kind; None where there is none."""
        where = int(self._last[place, KINDS.index(kind)])
        if not where:
            return None
        content = ctypes.string_at(where, layout.SLOT_BYTES)
        slot: np.void = np.frombuffer(content, dtypes.OURS.dtypes[kind])[0]
        return slot

    def kernel_times_ns(self, place: int) -> Ints:
        """How long each kernel of a communicator took."""
        return np.asarray(self._took_ns[self._place == place])


def settled_events(
    log: SlotLog,
    clock: TickClock,
    nonce: int,
    communicators: Sequence[int],
    reporting: Sequence[int],
) -> SettledEvents | None:
    """The sums of a process's events; None where one is open or in flight, or where threads
    reported states of events of others. `reporting`: by communicator one of settled_reporting.
    """
    kinds = log.kinds
    if kinds is None or kinds[layout.KINDS["State"]] or len(set(communicators)) < len(reporting):
        return None
    comms, room = len(communicators), int(kinds[layout.KINDS["KernelCh"]])
    for_c, kept = log_for_c(log, clock)
    converter = TickConverter(clock, nonce)
    number = np.array(communicators, np.int64)
    reports = np.array(reporting, np.int8)
    counts, last = np.empty((comms, 4), np.int64), np.empty((comms, 4), np.uint64)
    newest_stop = np.empty(comms, np.int64)
    parent, took = np.empty((2, room), np.int64)
    place = np.empty(room, np.int32)
    found = _abi.Settled(
        comms, address(number), address(reports), address(counts), address(last),
        address(newest_stop), room, address(parent), address(took), address(place), 0,
        int(clock.monotonic_ns[-1]),
    )  # fmt: skip
    is_settled = library().ncclscope_settle(
        ctypes.byref(for_c), ctypes.byref(converter.for_c), ctypes.byref(found)
    )
    del kept
    if not is_settled:
        return None
    return SettledEvents(
        counts.tolist(),
        newest_stop.tolist(),
        found.newest_ns,
        last,
        took[: found.kernels],
        place[: found.kernels],
        log,
    )
