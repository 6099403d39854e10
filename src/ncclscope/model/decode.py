"""Events of one process by kind, as columns: keys, slots, host times, threads.

Everything is in the order of keys (stream, index), so that a parent is found by binary search.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.capture import dtypes, layout
from ncclscope.capture.events import handle_keys
from ncclscope.capture.process import Process
from ncclscope.capture.segment import KEY_SHIFT, expand
from ncclscope.model.tables import NONE

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_STATE = layout.KINDS["State"]
_KERNEL_STOP = 22


@dataclass(frozen=True, slots=True)
class Events:
    """All events of one kind. Times are ns of the host's CLOCK_MONOTONIC."""

    keys: Ints
    slots: npt.NDArray[np.void]
    start_ns: Ints
    thread: Ints

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, keys: Ints) -> Ints:
        """Place of each key among these events, NONE where it is not there."""
        return find(self.keys, keys)

    def where(self, mask: Bools) -> "Events":
        """Those that the mask marks."""
        return Events(self.keys[mask], self.slots[mask], self.start_ns[mask], self.thread[mask])


@dataclass(frozen=True, slots=True)
class Decoded:
    """One process's events by kind, and what they need to be read."""

    process: Process
    kinds: dict[str, Events]

    def __getitem__(self, kind: str) -> Events:
        return self.kinds[kind]

    def stop_ns(self, kind: str) -> Ints:
        """When each event of a kind stopped, NONE for those that did not."""
        events = self.kinds[kind]
        stopped = (events.slots["states"] & layout.STATE_STOPPED) != 0
        return np.where(stopped, self.process.clock.to_ns(events.slots["t1"]), NONE)

    def parents(self, handles: npt.NDArray[np.uint64]) -> Ints:
        """Keys of this process's events, NONE for anything else."""
        return handle_keys(handles, self.process.header.nonce)


def find(among: Ints, keys: Ints) -> Ints:
    """Place of each key in a sorted array, NONE where it is not there."""
    if not len(among):
        return np.full(len(keys), NONE, np.int64)
    place = np.searchsorted(among, keys)
    place[place == len(among)] = 0
    return np.where(among[place] == keys, place, NONE)


def decode(process: Process, kinds: tuple[str, ...]) -> Decoded:
    """The events of the kinds that are asked for."""
    log = process.slots
    rows = expand(log.blocks.row, log.blocks.count)
    keys = expand(log.blocks.key, log.blocks.count)
    kind_bytes = [np.ascontiguousarray(segment["kind"]) for segment in log.segments]
    all_kinds = np.concatenate([np.empty(0, np.uint8), *kind_bytes])[rows]
    found = {}
    for name in kinds:
        mine = np.flatnonzero(all_kinds == layout.KINDS[name])
        # A copy: what States say is written into it.
        slots = log.take(rows[mine]).view(dtypes.OURS.dtypes[name])
        block = np.searchsorted(log.blocks.key, keys[mine], side="right") - 1
        found[name] = Events(
            keys[mine], slots, process.clock.to_ns(slots["t0"]), log.blocks.tid[block]
        )
    decoded = Decoded(process, found)
    states = np.flatnonzero(all_kinds == _STATE)
    if len(states):
        slots = log.take(rows[states]).view(dtypes.OURS.dtypes["State"])
        _apply_states(decoded, slots)
    return decoded


def _apply_states(decoded: Decoded, states: npt.NDArray[np.void]) -> None:
    """Stops and kernel stops that came from another thread, as if they stood in their events."""
    parents = decoded.parents(states["parent"])
    stop = states["state"] == layout.STATE_IS_STOP
    kernel = states["state"] == _KERNEL_STOP
    for name, events in decoded.kinds.items():
        place = events.find(parents)
        for mine in (np.flatnonzero((place >= 0) & stop),):
            at = place[mine]
            fresh = (events.slots["states"][at] & layout.STATE_STOPPED) == 0
            events.slots["t1"][at[fresh]] = states["t0"][mine[fresh]]
            events.slots["states"][at[fresh]] |= layout.STATE_STOPPED
        if name == "KernelCh":
            mine = np.flatnonzero((place >= 0) & kernel)
            at = place[mine]
            events.slots["gpu_stop"][at] = states["arg"][mine]
            events.slots["t_stop"][at] = states["t0"][mine]
            events.slots["states"][at] |= layout.STATE_FIRST


def extensions(decoded: Decoded, events: Events, kind: str) -> npt.NDArray[np.void]:
    """The slot behind each event that has one; zeros where there is none."""
    out = np.zeros(len(events), dtypes.OURS.dtypes[kind])
    extended = np.flatnonzero(events.slots["flags"] & layout.FLAG_EXT)
    rows = decoded.process.slots.rows_of(events.keys[extended] + 1)
    known = rows >= 0
    slots = decoded.process.slots.take(rows[known])
    right = slots["kind"] == layout.KINDS[kind]
    out[extended[known][right]] = slots[right].view(dtypes.OURS.dtypes[kind])
    return out


def stream_of(keys: Ints) -> Ints:
    """The stream in which each key lies."""
    return keys >> KEY_SHIFT
