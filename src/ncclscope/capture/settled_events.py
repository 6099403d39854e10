"""What is left of a process's events when nothing is open or in flight; calls the compiled pass.

A job that has ended has thousands of such processes, and each event of theirs matters only for a
few sums. Event by event they take three times as long.
"""

import ctypes
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ncclscope.arrays import _abi
from ncclscope.arrays.library import address, library
from ncclscope.arrays.types import Ints
from ncclscope.capture import dtypes, layout
from ncclscope.capture.columns import TickConverter, log_for_c
from ncclscope.capture.metadata import Communicator
from ncclscope.capture.slot_log import SlotLog
from ncclscope.capture.tick_clock import TickClock

# What the kernels of a communicator's works tell: one of settled_reporting.
Reporting = Callable[[Communicator], int]
KINDS = ("CollApi", "P2pApi", "Coll", "P2p")  # places: settled_kind of arrays.h


@dataclass(frozen=True, slots=True)
class SettledEvents:
    """By communicator, in the order in which they were given: how many events there are of each of
    KINDS, and when the last kernel stopped.
    """

    counts: list[list[int]]
    newest_stop_ns: list[int]  # NONE: no kernel has stopped
    newest_ns: int  # of all times of events, and of the clock
    _last: list[bytes]  # by communicator and kind the last event; empty where there is none
    kernel_times_ns: list[Ints]  # how long each kernel took

    def last_slot(self, place: int, kind: str) -> np.void | None:
        """The last event of a communicator and kind; None where there is none."""
        content = self._last[place * len(KINDS) + KINDS.index(kind)]
        if not content:
            return None
        slot: np.void = np.frombuffer(content, dtypes.OURS.dtypes[kind])[0]
        return slot


@dataclass(frozen=True, slots=True)
class _Room:
    """Where the compiled pass puts what it finds."""

    for_c: _abi.Settled
    counts: Ints
    last: Ints
    newest_stop_ns: Ints
    took_ns: Ints
    place: Ints
    kept: tuple[npt.NDArray[Any], ...]  # must outlive the pass

    def found(self) -> SettledEvents:
        """What it found."""
        kernels, last = self.for_c.kernels, self.last.tolist()
        took_ns, place = self.took_ns[:kernels], self.place.view(np.int32)[:kernels]
        return SettledEvents(
            self.counts.reshape(-1, len(KINDS)).tolist(),
            self.newest_stop_ns.tolist(),
            self.for_c.newest_ns,
            [ctypes.string_at(where, layout.SLOT_BYTES) if where else b"" for where in last],
            [took_ns[place == own] for own in range(self.for_c.comms)],
        )


def _room(
    communicators: Sequence[Communicator], reporting: Reporting, kernels: int, clock: TickClock
) -> _Room:
    """Room for so many kernels."""
    comms = len(communicators)
    reports = np.array([reporting(comm) for comm in communicators], np.int8)
    # One array, because to ask where one is takes longer than to make it.
    ends = list(itertools.accumulate((comms, 4 * comms, 4 * comms, comms, *[kernels] * 3)))
    numbers = np.empty(ends[-1], np.int64)
    numbers[:comms] = [comm.number for comm in communicators]
    counts, last, newest_stop, _, took, place = (
        numbers[first:end] for first, end in itertools.pairwise(ends)
    )
    where = int(numbers.ctypes.data)
    at_counts, at_last, at_stops, at_parent, at_took, at_place = (
        where + 8 * end for end in ends[:-1]
    )
    for_c = _abi.Settled(
        comms, where, address(reports), at_counts, at_last, at_stops, kernels, at_parent, at_took,
        at_place, 0, int(clock.monotonic_ns[-1]),
    )  # fmt: skip
    return _Room(for_c, counts, last, newest_stop, took, place, (numbers, reports))


def settled_events(
    log: SlotLog,
    clock: TickClock,
    nonce: int,
    communicators: Sequence[Communicator],
    reporting: Reporting,
) -> SettledEvents | None:
    """The sums of a process's events; None where one is open or in flight, or where threads
    reported states of events of others.
    """
    kinds = log.kinds
    if kinds is None or kinds[layout.KINDS["State"]] or not _are_different(communicators):
        return None
    for_c, kept = log_for_c(log, clock)
    converter = TickConverter(clock, nonce)
    room = _room(communicators, reporting, int(kinds[layout.KINDS["KernelCh"]]), clock)
    is_settled = library().ncclscope_settle(
        ctypes.byref(for_c), ctypes.byref(converter.for_c), ctypes.byref(room.for_c)
    )
    del kept
    return room.found() if is_settled else None


class RawSlots(NamedTuple):
    """Slots in memory that stays where it is."""

    where: int
    slots: int


def settled_segment(
    raw: RawSlots,
    clock: TickClock,
    nonce: int,
    communicators: Sequence[Communicator],
    reporting: Reporting,
) -> SettledEvents | None:
    """The same of a process whose log is one file; None also where that is damaged, has newer
    versions of slots, or ranges.
    """
    if not _are_different(communicators):
        return None
    converter = TickConverter(clock, nonce)
    room = _room(communicators, reporting, raw.slots, clock)
    is_settled = library().ncclscope_settle_segment(
        raw.where, raw.slots, *clock.tick_range(), ctypes.byref(converter.for_c),
        ctypes.byref(room.for_c),
    )  # fmt: skip
    return room.found() if is_settled else None


def _are_different(communicators: Sequence[Communicator]) -> bool:
    return len({comm.number for comm in communicators}) == len(communicators)
