"""Ranges of one process: what its program said it was doing, thread by thread, and how they nest.

A range names the range around it (`parent`), so the ranges that were open at a call are a chain:
the last range that began before the call in the call's own stream, or the nearest one around it
that had not ended. The order of slots decides, no clock. Example, slots of one stream:

    0 Range backward   1 Range pre_backward(b2)   2 Range prefetch(b1)   3 CollApi   4 CollApi

If range 2 ended between 3 and 4, call 3 is in [backward, pre_backward(b2), prefetch(b1)] and call
4 in [backward, pre_backward(b2)].
"""

import ctypes
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ncclscope.arrays.joins import positions_of
from ncclscope.arrays.types import Bools, Ints
from ncclscope.capture import dtypes, layout
from ncclscope.capture.columns import (
    START_NS,
    STOP_NS,
    Events,
    HeadFilter,
    ReadPlan,
    flag_column,
    key,
    number,
)
from ncclscope.capture.process import Process
from ncclscope.capture.range_names import Value
from ncclscope.capture.range_payloads import range_payloads
from ncclscope.capture.segment import KEY_SHIFT
from ncclscope.humanize import printable
from ncclscope.model.process.events import ProcessEvents, stream_of
from ncclscope.model.process.works import Numbers
from ncclscope.model.schema import NONE

_PLAN = ReadPlan(
    {
        "start_ns": START_NS,
        "end_ns": STOP_NS,
        "parent": key("parent"),
        "text": number("text", "i4"),
        "domain": number("domain", "i4"),
        "category": number("category"),
        "source": number("chan", "i2"),
        "payload": number("payload"),
        "payload_type": number("payload_type", "i2"),
        "is_mark": flag_column(HeadFilter(states=layout.STATE_FIRST)),
        "is_loose": flag_column(HeadFilter(flags=layout.FLAG_SEND)),
    }
)
RANGE_PLANS = {"Range": _PLAN}
_DEEPEST = 256  # ranges around each other; deeper ones keep what the 256th says
_NEVER = np.int64(1) << 62
_LARGEST_TEXT = 0xFFFF  # numbers of texts have 16 bits in metadata
_TEXT_BYTES = layout.SLOT_BYTES - dtypes.OURS.dtypes["RangeText"].fields["text"][1]  # type: ignore[index]


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges in the order of their keys. Loose ones (start and end) do not nest."""

    keys: Ints
    start_ns: Ints
    end_ns: Ints  # NONE: open at the end of the record
    parent: Ints  # place of the range around it, NONE
    thread: Numbers
    text: Numbers  # place in `texts`
    domain: Numbers
    category: Ints
    source: Numbers
    payload: Ints
    payload_type: Numbers
    is_mark: Bools
    is_loose: Bools
    texts: list[str]
    domains: dict[int, str]

    def __len__(self) -> int:
        return len(self.keys)

    def until_ns(self) -> Ints:
        """When each range ended for those inside it: not after the range around it. A push that
        was never popped ends there.
        """
        until = np.where(self.end_ns == NONE, _NEVER, self.end_ns)
        for level in self.levels()[1:]:
            until[level] = np.minimum(until[level], until[self.parent[level]])
        return until

    def sources_of_texts(self) -> list[int]:
        """Who wrote each text: of several writers the first."""
        first = np.unique(self.text, return_index=True)[1]
        sources = np.full(len(self.texts), NONE, np.int64)
        sources[self.text[first]] = self.source[first]
        return [int(source) for source in sources]

    def levels(self) -> list[Ints]:
        """Places of the outermost ranges, of those right inside them, and so on."""
        depth = np.zeros(len(self), np.int64)
        at = self.parent.copy()
        for _ in range(_DEEPEST):
            inside = at != NONE
            if not inside.any():
                break
            depth += inside
            at = np.where(inside, self.parent[np.maximum(at, 0)], NONE)
        order = np.argsort(depth, kind="stable")
        edges = np.searchsorted(depth[order], np.arange(int(depth.max(initial=0)) + 2))
        return [order[first:last] for first, last in pairwise(edges)]

    def around(self, event_keys: Ints, event_ns: Ints) -> Ints:
        """The innermost range around each event of the same stream, NONE where there is none."""
        nests = np.flatnonzero(~self.is_mark & ~self.is_loose)
        if not len(nests):
            return np.full(len(event_keys), NONE, np.int64)
        last = np.searchsorted(self.keys[nests], event_keys) - 1
        place = np.where(last >= 0, nests[np.maximum(last, 0)], NONE)
        same = stream_of(self.keys[np.maximum(place, 0)]) == stream_of(event_keys)
        place = np.where(same, place, NONE)
        until = self.until_ns()
        for _ in range(_DEEPEST):
            over = (place != NONE) & (until[np.maximum(place, 0)] <= event_ns)
            rows = np.flatnonzero(over)
            if not len(rows):
                break
            place[rows] = self.parent[place[rows]]
        return place


def ranges_of(decoded: ProcessEvents) -> Ranges | None:
    """The ranges of a process; None where it has none."""
    events = decoded["Range"]
    if not len(events):
        return None
    read = events.read(**_PLAN.own)
    parent = positions_of(events.keys, read.pop("parent"))
    parent = np.where(parent < np.arange(len(events)), parent, NONE)  # damage, else
    text, texts = _texts(decoded, events, read.pop("text"))
    return Ranges(
        keys=events.keys,
        parent=parent,
        thread=events.thread,
        text=text,
        texts=texts,
        domains=decoded.process.range_domains,
        **read,
    )


def _texts(decoded: ProcessEvents, events: Events, ids: Numbers) -> tuple[Numbers, list[str]]:
    """The text of each range as a place in a list. Text 0 found no place in the recorder's table:
    its first bytes are in the slot behind the range.
    """
    known = decoded.process.range_texts
    ids = np.where((ids < 0) | (ids > _LARGEST_TEXT), 0, ids)  # damage, else
    places: dict[str, int] = {}
    by_id = {
        number: places.setdefault(printable(known.get(number, "")), len(places))
        for number in np.unique(ids).tolist()
        if number
    }
    table = np.zeros(int(ids.max(initial=0)) + 1, np.int32)
    for number_, place in by_id.items():
        table[number_] = place
    out = table[np.maximum(ids, 0)]
    for row in np.flatnonzero(ids == 0).tolist():
        where = int(events.extended[row]) if len(events.extended) else 0
        content = b""
        if where:
            slot = ctypes.string_at(where, layout.SLOT_BYTES)
            content = slot[layout.SLOT_BYTES - _TEXT_BYTES :].split(b"\0")[0]
        text = printable(content.decode("utf-8", "replace"))
        out[row] = places.setdefault(text, len(places))
    return out.astype(np.int32), list(places)


def payloads_of_ranges(process: Process, ranges: Ranges) -> dict[int, dict[str, Value]]:
    """By place of a range the fields of its payload, where an NVTX schema says what they are."""
    if not process.range_schemas:
        return {}
    log_keys, payloads = _log_keys(ranges.keys), range_payloads(process)
    place_of = {key_: place for place, key_ in enumerate(log_keys.tolist())}
    return {place_of[key_]: fields for key_, fields in payloads.items() if key_ in place_of}


def _log_keys(keys: Ints) -> Ints:
    """Keys of events as the log of slots has them."""
    return (keys >> layout.INDEX_BITS) << KEY_SHIFT | keys & layout.INDEX_MASK
