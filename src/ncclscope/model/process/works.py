"""NCCL's works of one process: Coll, P2p and CeColl events, and their launches."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.joins import ChildEvents, positions_of, sibling_before, take_small
from ncclscope.arrays.library import full_array
from ncclscope.arrays.types import Bools, Ints
from ncclscope.capture import columns, layout
from ncclscope.capture.columns import (
    START_NS,
    STOP_NS,
    Events,
    HeadFilter,
    ReadPlan,
    key,
    number,
    string,
)
from ncclscope.model.process.events import ProcessEvents
from ncclscope.model.schema import COLLECTIVE, COPY_ENGINE, NONE, RECV, SEND, Columns
from ncclscope.model.vocabulary import Codes, Vocabulary, codes_of
from ncclscope.nccl.algorithms import ALGORITHMS, PROTOCOLS
from ncclscope.nccl.datatypes import DATATYPES_OF_V1, datatype_name
from ncclscope.nccl.functions import COLL_COUNTS_BYTES, NUMBERED_FUNCTIONS

Numbers = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Works:
    """Works in the order of their keys."""

    keys: Ints
    enqueue_ns: Ints
    stopped_ns: Ints  # enqueueing ended; of copy engines only
    thread: Numbers
    comm: Numbers  # number within the process
    call: Ints  # key of the API call it belongs to, NONE
    group: Ints  # key of the Group event: one launch
    form: Codes
    function: Codes
    datatype: Codes
    algorithm: Codes
    protocol: Codes
    variant: Codes
    count: Ints
    counted_in_bytes: Bools
    root: Numbers
    peer: Numbers
    channels: npt.NDArray[np.int16]
    warps: npt.NDArray[np.int16]
    sequence: Ints
    tag: Ints
    stream: Ints  # CUDA's, known for copy engines only
    symmetric: Bools
    rank: Numbers  # by the descriptor, NONE where it has none
    comm_hash: Ints  # interface v1 to v3

    def __len__(self) -> int:
        return len(self.keys)


_NAMES: dict[str, tuple[str, Callable[[str], str], tuple[str, ...]]] = {
    "function": ("func", str, NUMBERED_FUNCTIONS),
    "datatype": ("dtype", datatype_name, DATATYPES_OF_V1),
    "algorithm": ("algo", str, ALGORITHMS),
    "protocol": ("proto", str, PROTOCOLS),
    "variant": ("variant", str, ()),
}


# Columns of string ids; `set_codes` replaces them by codes.
CALLED = {"function": string("func"), "datatype": string("dtype")}
_CARRIED_OUT = {
    "algorithm": string("algo"),
    "protocol": string("proto"),
    "variant": string("variant"),
}


def set_codes(words: Vocabulary, decoded: ProcessEvents, events: Events, columns: Columns) -> None:
    """Replaces string ids of the process by codes, in place."""
    sorts = [sort for sort in _NAMES if sort in columns]
    seen = events.names(*(_NAMES[sort][0] for sort in sorts))
    for sort, ids in zip(sorts, seen, strict=True):
        _, rename, numbers = _NAMES[sort]
        codes = codes_of(words, sort, ids, decoded.process.strings, rename, numbers)
        columns[sort] = take_small(codes, columns[sort])


# Columns that some kinds of works lack.
_OPTIONAL = {
    "stopped_ns": "i8",
    "algorithm": "i1",
    "protocol": "i1",
    "variant": "i1",
    "root": "i4",
    "peer": "i4",
    "warps": "i2",
    "sequence": "i8",
    "stream": "i8",
    "rank": "i4",
}


def _with_all_columns(events: Events, read: Columns) -> Columns:
    """The columns of a kind of work, NONE in those that it lacks."""
    count = len(events)
    lacking = {
        name: full_array(count, dtype, NONE)
        for name, dtype in _OPTIONAL.items()
        if name not in read
    }
    for name in ("symmetric", "counted_in_bytes"):
        if name not in read:
            lacking[name] = np.zeros(count, bool)
    if "comm_hash" not in read:
        lacking["comm_hash"] = full_array(count, np.int64, 0)
    return lacking | read | {"keys": events.keys, "thread": events.thread}


_COMMON = {
    "enqueue_ns": START_NS,
    "comm": number("comm", "i4"),
    "call": key("parent"),
    "count": number("count"),
    **CALLED,
}


def _in_bytes(function: Codes, words: Vocabulary) -> Bools:
    return words.among("function", COLL_COUNTS_BYTES, function)


_COLL = ReadPlan(
    own={
        **_COMMON,
        **_CARRIED_OUT,
        "root": number("root", "i4"),
        "channels": number("channels", "i2"),
        "warps": number("warps", "i2"),
        "sequence": number("seq"),
        "bits": number("bits", "i1"),
        "in_group": columns.flag_column(HeadFilter(flags=layout.FLAG_IN_GROUP)),
    },
    behind={
        "group": key("parent_group"),
        "tag": number("tag"),
        "rank": number("rank", "i4"),
        "comm_hash": number("comm_hash"),
    },
)


def _coll_columns(decoded: ProcessEvents, words: Vocabulary) -> Columns:
    events = decoded["Coll"]
    own, behind = events.read(**_COLL.own), events.read_extensions(**_COLL.behind)
    set_codes(words, decoded, events, own)
    symmetric = (own.pop("bits") & layout.COLL_IS_SYMMETRIC) != 0
    in_group = own.pop("in_group")  # the event before it is its Group, and it has no extension
    behind["group"] = np.where(in_group, events.keys - 1, behind["group"])
    behind["rank"][in_group] = NONE
    rest: Columns = {
        "form": np.full(len(events), COLLECTIVE, np.int8),
        "counted_in_bytes": _in_bytes(own["function"], words),
        "symmetric": symmetric,
    }
    return _with_all_columns(events, own | behind | rest)


def _p2p_columns(decoded: ProcessEvents, words: Vocabulary) -> Columns:
    events = decoded["P2p"]
    own = events.read(
        **_COMMON,
        group=key("parent_group"),
        peer=number("peer", "i4"),
        channels=number("chan", "i2"),
        extended=columns.flag_column(HeadFilter(flags=layout.FLAG_EXT)),
    )
    set_codes(words, decoded, events, own)
    extended = own.pop("extended")
    behind = events.read_extensions(
        tag=number("tag"), rank=number("rank", "i4"), comm_hash=number("comm_hash")
    )
    behind["rank"][~extended] = NONE
    is_send = words.among("function", ("Send",), own["function"])
    rest: Columns = {"form": np.where(is_send, SEND, RECV).astype(np.int8)}
    return _with_all_columns(events, own | behind | rest)


def _ce_columns(decoded: ProcessEvents, words: Vocabulary) -> Columns:
    events = decoded["CeColl"]
    own = events.read(**_COMMON, stopped_ns=columns.STOP_NS, root=number("root", "i4"))
    set_codes(words, decoded, events, own)
    behind = events.read_extensions(tag=number("tag"), stream=number("stream"))
    count = len(events)
    rest: Columns = {
        "group": np.full(count, NONE, np.int64),
        "form": np.full(count, COPY_ENGINE, np.int8),
        "counted_in_bytes": _in_bytes(own["function"], words),
        "channels": np.zeros(count, np.int16),
    }
    return _with_all_columns(events, own | behind | rest)


def works_of(decoded: ProcessEvents, words: Vocabulary) -> Works:
    """All works of a process, in the order of their keys."""
    makers = {"Coll": _coll_columns, "P2p": _p2p_columns, "CeColl": _ce_columns}
    used = [kind for kind in makers if len(decoded[kind])] or ["Coll"]
    columns = in_key_order([makers[kind](decoded, words) for kind in used])
    # Before v5 the parent is the Group itself, and there are no API calls.
    early = positions_of(decoded["Group"].keys, columns["call"]) >= 0
    if early.any():
        columns["group"] = np.where(early, columns["call"], columns["group"])
        columns["call"] = np.where(early, NONE, columns["call"])
    return Works(**columns)


def in_key_order(parts: list[Columns]) -> Columns:
    """Parts of a table as one, sorted by their keys."""
    if len(parts) == 1:
        return parts[0]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(joined["keys"], kind="stable")
    return {name: values[order] for name, values in joined.items()}


# Columns of KernelLaunch events.
LAUNCHED = {
    "group_call": key("parent"),
    "comm": number("comm", "i4"),
    "start_ns": START_NS,
    "end_ns": STOP_NS,
}


WORK_PLANS = {"Coll": _COLL, "KernelLaunch": ReadPlan(LAUNCHED)}


def launches_of(decoded: ProcessEvents, launched: Columns, works: Works, group_calls: Ints) -> Ints:
    """Place of each work's KernelLaunch, NONE where there is none.

    A plan is launched, then reported, by one thread: its launch is the one before it in its stream.
    `launched`: LAUNCHED of each launch; `group_calls`: keys of the works' GroupApi, NONE for
    replays.
    """
    launches, parents = decoded["KernelLaunch"], launched["group_call"]
    if not len(launches):
        return np.full(len(works), NONE, np.int64)
    at = sibling_before(
        ChildEvents(launches.keys, parents, launched["comm"]),
        ChildEvents(works.keys, group_calls, works.comm),
    )
    if at.min(initial=0) > NONE:
        return at
    # Works that another thread reports: the last launch of their group call.
    order = np.argsort(parents, kind="stable")
    last = np.searchsorted(parents[order], group_calls, side="right") - 1
    other = order[np.maximum(last, 0)]
    follows = (last >= 0) & (parents[other] == group_calls) & (group_calls != NONE)
    return np.where(at != NONE, at, np.where(follows, other, NONE))
