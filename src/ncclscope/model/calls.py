"""The user's calls of one process, and which call and which work make one operation."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.capture import layout
from ncclscope.model.decode import Bools, Decoded, Ints, find, stream_of
from ncclscope.model.tables import COLLECTIVE, NONE, RECV, SEND
from ncclscope.model.words import Codes, Words, datatype_name, translate
from ncclscope.model.works import Works, in_key_order


@dataclass(frozen=True, slots=True)
class Calls:
    """API calls, in the order of their keys."""

    keys: Ints
    start_ns: Ints
    end_ns: Ints
    thread: npt.NDArray[np.int32]
    comm: Ints
    form: Codes
    function: Codes
    datatype: Codes
    count: Ints
    root: Ints
    stream: Ints
    tag: Ints
    captured: Bools  # into a CUDA graph
    group_call: Ints  # key of its GroupApi

    def __len__(self) -> int:
        return len(self.keys)


def calls_of(decoded: Decoded, words: Words) -> Calls:
    """All calls of a process. Interfaces before v5 report none."""
    parts = []
    for kind in [kind for kind in ("CollApi", "P2pApi") if len(decoded[kind])] or ["CollApi"]:
        events = decoded[kind]
        slots, strings = events.slots, decoded.process.strings
        function = translate(words, "function", slots["func"], slots["flags"], strings)
        is_send = np.isin(function, words.known("function", ("Send",)))
        p2p = np.where(is_send, SEND, RECV)
        parts.append(
            {
                "keys": events.keys,
                "start_ns": events.start_ns,
                "end_ns": decoded.stop_ns(kind),
                "thread": events.thread,
                "comm": slots["comm"].astype(np.int64),
                "form": (p2p if kind == "P2pApi" else np.full(len(events), COLLECTIVE)),
                "function": function,
                "datatype": translate(
                    words, "datatype", slots["dtype"], slots["flags"], strings, datatype_name
                ),
                "count": slots["count"].astype(np.int64),
                "root": slots["root"].astype(np.int64),
                "stream": slots["stream"].astype(np.int64),
                "tag": slots["tag"].astype(np.int64),
                "captured": (slots["flags"] & layout.FLAG_GRAPH) != 0,
                "group_call": decoded.parents(slots["parent"]),
            }
        )
    return Calls(**in_key_order(parts))


@dataclass(frozen=True, slots=True)
class Rows:
    """Operations as pairs of a call and a work, NONE where one is missing."""

    call: Ints  # of a replay: the captured call
    work: Ints
    replay: Bools
    captured: Bools

    def __len__(self) -> int:
        return len(self.call)


@dataclass(frozen=True, slots=True)
class Links:
    """What connects works to calls."""

    call: Ints  # place of each work's call, NONE
    replay: Bools  # of each work
    group_call: Ints  # GroupApi of each work, NONE for replays


def link(calls: Calls, works: Works) -> Links:
    """Each work's call. Works of a captured call are its replays."""
    call = find(calls.keys, works.call)
    captured = pick(calls.captured.astype(np.int64), call, 0) == 1
    # At capture NCCL may report the work once, from the calling thread; replays come from CUDA's.
    replay = captured & (stream_of(works.keys) != stream_of(np.maximum(works.call, 0)))
    group_call = pick(calls.group_call, np.where(replay, NONE, call))
    return Links(call, replay, group_call)


def rows_of(calls: Calls, links: Links) -> Rows:
    """A row for each call with its work, and one for each work that is no call's first."""
    own = np.flatnonzero((links.call != NONE) & ~links.replay)
    work_of_call = np.full(len(calls), NONE, np.int64)
    work_of_call[links.call[own][::-1]] = own[::-1]  # the first, should there be several
    more = np.ones(len(links.call), bool)
    more[work_of_call[work_of_call != NONE]] = False
    extra = np.flatnonzero(more)
    nothing = np.zeros(len(extra), bool)
    return Rows(
        call=np.concatenate([np.arange(len(calls)), links.call[extra]]),
        work=np.concatenate([work_of_call, extra]),
        replay=np.concatenate([np.zeros(len(calls), bool), links.replay[extra]]),
        captured=np.concatenate([calls.captured, nothing]),
    )


def pick(values: Ints, places: Ints, otherwise: int = NONE) -> Ints:
    """values[places], `otherwise` where the place is NONE."""
    if not len(values):
        return np.full(len(places), otherwise, np.int64)
    found = values[places]  # NONE takes the last one
    nowhere = places == NONE
    if nowhere.any():
        found[nowhere] = otherwise
    return found
