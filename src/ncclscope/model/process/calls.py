"""The user's calls of one process, and which call and work make one operation.

Example: calls 0, 1, 2, of which 1 is captured into a CUDA graph; works a (of call 0), b and c (both
of call 1: replays). NCCL reports no work of call 2. The rows of operations are

    row   call   work
    0     0      a
    1     1      -      captured: its replays carry it out
    2     2      -
    3     1      b      replay
    4     1      c      replay
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.joins import coalesce, is_identity, positions_of, read_only_view, take
from ncclscope.arrays.types import Bools, Ints
from ncclscope.capture import layout
from ncclscope.capture.columns import (
    START_NS,
    STOP_NS,
    HeadFilter,
    ReadPlan,
    flag_column,
    key,
    number,
)
from ncclscope.model.process.events import ProcessEvents, stream_of
from ncclscope.model.process.works import CALLED, Numbers, Works, in_key_order, set_codes
from ncclscope.model.schema import COLLECTIVE, NONE, RECV, SEND, Columns
from ncclscope.model.vocabulary import Codes, Vocabulary


@dataclass(frozen=True, slots=True)
class Calls:
    """API calls, in the order of their keys."""

    keys: Ints
    start_ns: Ints
    end_ns: Ints
    thread: Numbers
    comm: Numbers
    form: Codes
    function: Codes
    datatype: Codes
    count: Ints
    root: Numbers
    stream: Ints
    tag: Ints
    captured: Bools  # into a CUDA graph
    group_call: Ints  # key of its GroupApi

    def __len__(self) -> int:
        return len(self.keys)


_CALL = ReadPlan(
    {
        "start_ns": START_NS,
        "end_ns": STOP_NS,
        "comm": number("comm", "i4"),
        "count": number("count"),
        "root": number("root", "i4"),
        "stream": number("stream"),
        "tag": number("tag"),
        "captured": flag_column(HeadFilter(flags=layout.FLAG_GRAPH)),
        "group_call": key("parent"),
        **CALLED,
    }
)
CALL_PLANS = {"CollApi": _CALL, "P2pApi": _CALL}


def calls_of(decoded: ProcessEvents, words: Vocabulary) -> Calls:
    """All calls of a process; none before interface v5."""
    parts = []
    for kind in [kind for kind in ("CollApi", "P2pApi") if len(decoded[kind])] or ["CollApi"]:
        events = decoded[kind]
        read = events.read(**_CALL.own)
        set_codes(words, decoded, events, read)
        form = np.full(len(events), COLLECTIVE, np.int8)
        if kind == "P2pApi":
            is_send = words.among("function", ("Send",), read["function"])
            form = np.where(is_send, SEND, RECV).astype(np.int8)
        rest: Columns = {"keys": events.keys, "thread": events.thread, "form": form}
        parts.append(read | rest)
    return Calls(**in_key_order(parts))


@dataclass(frozen=True, slots=True)
class Rows:
    """Operations as pairs of a call and a work, NONE where one is missing."""

    call: Ints  # of a replay: the captured call
    called: Ints  # the same, NONE for replays
    work: Ints
    replay: Bools
    captured: Bools
    paired: bool  # row, call and work have the same number: each call has its work, in order

    def __len__(self) -> int:
        return len(self.call)

    def column(
        self, *parts: tuple[npt.NDArray[Any], Ints], otherwise: int = NONE
    ) -> npt.NDArray[Any]:
        """A column of the rows. `parts`: columns of calls or works, each with its places by row;
        the first that is not NONE counts.
        """
        return read_only_view(parts[0][0]) if self.paired else coalesce(*parts, otherwise=otherwise)

    def of_work(self, values: npt.NDArray[Any], otherwise: int = NONE) -> npt.NDArray[Any]:
        """A column of the rows from a column of works."""
        return self.column((values, self.work), otherwise=otherwise)


@dataclass(frozen=True, slots=True)
class CallLinks:
    """Which call each work belongs to."""

    call: Ints  # place of each work's call, NONE
    replay: Bools  # of each work
    group_call: Ints  # GroupApi of each work, NONE for replays


def link(calls: Calls, works: Works) -> CallLinks:
    """Each work's call. Works of a captured call are its replays."""
    call = positions_of(calls.keys, works.call)
    captured = take(calls.captured, call, 0)
    # At capture NCCL may report the work once, from the calling thread; replays come from CUDA's.
    replay = captured
    if captured.any():
        replay = captured & (stream_of(works.keys) != stream_of(np.maximum(works.call, 0)))
    eager = np.where(replay, NONE, call) if replay.any() else call
    group_call = take(calls.group_call, eager)
    return CallLinks(call, replay, group_call)


def rows_of(calls: Calls, links: CallLinks) -> Rows:
    """A row for each call with its work, and one for each work that is no call's first."""
    if len(links.call) == len(calls) and not links.replay.any() and is_identity(links.call):
        return Rows(links.call, links.call, links.call, links.replay, calls.captured, paired=True)
    own = np.flatnonzero((links.call != NONE) & ~links.replay)
    work_of_call = np.full(len(calls), NONE, np.int64)
    work_of_call[links.call[own][::-1]] = own[::-1]  # the first, should there be several
    more = np.ones(len(links.call), bool)
    more[work_of_call[work_of_call != NONE]] = False
    extra = np.flatnonzero(more)
    never = np.zeros(len(extra), bool)
    call = np.concatenate([np.arange(len(calls)), links.call[extra]])
    replay = np.concatenate([np.zeros(len(calls), bool), links.replay[extra]])
    return Rows(
        call=call,
        called=np.where(replay, NONE, call) if replay.any() else call,
        work=np.concatenate([work_of_call, extra]),
        replay=replay,
        captured=np.concatenate([calls.captured, never]),
        paired=False,
    )
