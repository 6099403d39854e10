"""Events of one process by kind, as columns: keys, slots, host times, threads.

Everything is in the order of keys (stream and index, as in handles), so that a parent is found by
binary search.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.capture import dtypes, layout
from ncclscope.capture.clock import Clock
from ncclscope.capture.process import Process
from ncclscope.capture.segment import INDEX_LIMIT, KEY_SHIFT, Blocks, expand
from ncclscope.model.tables import NONE

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_EXTENSIONS = {"Coll": "CollExt", "P2p": "P2pExt", "CeColl": "CeExt"}
_KEY_LENGTH = layout.STREAM_BITS + layout.INDEX_BITS
_KEY_BITS = np.uint64((1 << _KEY_LENGTH) - 1)
_STATE = layout.KINDS["State"]
_KERNEL_STOP = 22
_LATEST_STAMP_NS = np.uint64(1 << 62)  # GPUs count from 1970


@dataclass(frozen=True, slots=True)
class Events:
    """All events of one kind. Times are ns of the host's CLOCK_MONOTONIC."""

    keys: Ints
    slots: npt.NDArray[np.void]
    start_ns: Ints
    thread: npt.NDArray[np.int32]

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
    extensions: dict[str, npt.NDArray[np.void]]  # of Coll, P2p and CeColl; zeros without one
    impossible: int = 0  # events left out, because their times cannot be

    def __getitem__(self, kind: str) -> Events:
        return self.kinds[kind]

    def stop_ns(self, kind: str) -> Ints:
        """When each event of a kind stopped, NONE for those that did not."""
        events = self.kinds[kind]
        stopped = (events.slots["states"] & layout.STATE_STOPPED) != 0
        return np.where(stopped, self.process.clock.to_ns(events.slots["t1"]), NONE)

    def parents(self, handles: npt.NDArray[np.uint64]) -> Ints:
        """Keys of this process's events, NONE for anything else."""
        keys: Ints = (handles & _KEY_BITS).view(np.int64)
        foreign = (handles >> np.uint64(_KEY_LENGTH)) != self.process.header.nonce
        if foreign.any():
            keys[foreign] = NONE
        return keys


def find(among: Ints, keys: Ints) -> Ints:
    """Place of each key in a sorted array, NONE where it is not there."""
    if not len(among) or not len(keys):
        return np.full(len(keys), NONE, np.int64)
    # Children most often come in the order of their parents, equally many of each.
    guess = np.arange(len(keys), dtype=np.int64)
    if len(among) != len(keys):
        guess = guess * len(among) // len(keys)
    wrong = np.flatnonzero(among[guess] != keys)
    if len(wrong):
        place = np.searchsorted(among, keys[wrong])
        place[place == len(among)] = 0
        guess[wrong] = np.where(among[place] == keys[wrong], place, NONE)
    return guess


def numbered(key: Ints) -> Ints:
    """How often each key occurred before, by place."""
    out = np.empty(len(key), np.int64)
    if len(key):
        order = np.argsort(key, kind="stable")
        first = np.flatnonzero(np.concatenate([[True], np.diff(key[order]) != 0]))
        counts = np.diff(np.append(first, len(key)))
        out[order] = np.arange(len(key)) - np.repeat(first, counts)
    return out


def _keys(blocks: Blocks) -> Ints:
    """The lower bits of each slot's handle, in the order of blocks."""
    stream, index = blocks.key >> KEY_SHIFT, blocks.key & (INDEX_LIMIT - 1)
    return expand(stream << layout.INDEX_BITS | index, blocks.count)


def decode(process: Process, kinds: tuple[str, ...]) -> Decoded:
    """The events of the kinds that are asked for."""
    log = process.slots
    rows, keys = expand(log.blocks.row, log.blocks.count), _keys(log.blocks)
    threads = np.repeat(log.blocks.tid.astype(np.int32), log.blocks.count)
    kind_bytes = [np.ascontiguousarray(segment["kind"]) for segment in log.segments]
    all_kinds = np.concatenate([np.empty(0, np.uint8), *kind_bytes])[rows]
    found, extensions, impossible = {}, {}, 0
    for name in kinds:
        mine = np.flatnonzero(all_kinds == layout.KINDS[name])
        # A copy: what States say is written into it.
        slots = log.take(rows[mine]).view(dtypes.OURS.dtypes[name])
        fine = _possible(process.clock, name, slots)
        if not fine.all():
            mine, slots = mine[fine], slots[fine]
            impossible += int(np.count_nonzero(~fine))
        start_ns = process.clock.to_ns(slots["t0"])
        found[name] = Events(keys[mine], slots, start_ns, threads[mine])
        if name in _EXTENSIONS:
            extensions[name] = _extensions(process, _EXTENSIONS[name], mine, rows, all_kinds)
    decoded = Decoded(process, found, extensions, impossible)
    states = np.flatnonzero(all_kinds == _STATE)
    if len(states):
        slots = log.take(rows[states]).view(dtypes.OURS.dtypes["State"])
        _apply_states(decoded, slots[_possible(process.clock, "State", slots)])
    return decoded


def _possible(clock: Clock, kind: str, slots: npt.NDArray[np.void]) -> Bools:
    """Which events have times that can be."""
    fine = clock.covers_ticks(slots["t0"])
    if kind == "State":
        fine &= (slots["arg"] < _LATEST_STAMP_NS) | (slots["state"] != _KERNEL_STOP)
        return fine
    fine &= clock.covers_ticks(slots["t1"]) | ((slots["states"] & layout.STATE_STOPPED) == 0)
    if kind == "KernelCh":
        fine &= clock.covers_ticks(slots["t_stop"]) | ((slots["states"] & layout.STATE_FIRST) == 0)
        fine &= (slots["gpu_start"] < _LATEST_STAMP_NS) & (slots["gpu_stop"] < _LATEST_STAMP_NS)
    return fine


def _extensions(
    process: Process, kind: str, mine: Ints, rows: Ints, all_kinds: npt.NDArray[np.uint8]
) -> npt.NDArray[np.void]:
    """The slot behind each event; zeros where it is no extension."""
    behind = np.minimum(mine + 1, len(rows) - 1)
    out = process.slots.take(rows[behind]).view(dtypes.OURS.dtypes[kind])
    missing = np.flatnonzero(all_kinds[behind] != layout.KINDS[kind])
    out[missing] = np.zeros(1, out.dtype)[0]
    return out


def _apply_states(decoded: Decoded, states: npt.NDArray[np.void]) -> None:
    """Stops and kernel stops that came from another thread, as if they stood in their events."""
    parents = decoded.parents(states["parent"])
    stop = states["state"] == layout.STATE_IS_STOP
    kernel = states["state"] == _KERNEL_STOP
    for name, events in decoded.kinds.items():
        place = events.find(parents)
        mine = np.flatnonzero((place >= 0) & stop)
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


def stream_of(keys: Ints) -> Ints:
    """The stream in which each key lies."""
    return keys >> layout.INDEX_BITS
