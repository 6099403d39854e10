"""NCCL's works of one process (Coll, P2p, CeColl) with their launches, and the times of each."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.capture import layout
from ncclscope.model import sizes
from ncclscope.model.decode import Decoded, Events, Ints, find, stream_of
from ncclscope.model.tables import COLLECTIVE, COPY_ENGINE, NONE, RECV, SEND, Columns
from ncclscope.model.words import Codes, Words, datatype_name, translate


@dataclass(frozen=True, slots=True)
class Works:
    """Works in the order of their keys."""

    keys: Ints
    enqueue_ns: Ints
    stopped_ns: Ints  # the enqueuing ended; of copy engines only
    thread: npt.NDArray[np.int32]
    comm: Ints  # number within the process
    call: Ints  # key of the API call it belongs to, NONE
    group: Ints  # key of the Group event: one launch
    form: Codes
    function: Codes
    datatype: Codes
    algorithm: Codes
    protocol: Codes
    variant: Codes
    count: Ints
    counted_in_bytes: npt.NDArray[np.bool_]
    root: Ints
    peer: Ints
    channels: Ints
    warps: Ints
    sequence: Ints
    tag: Ints
    stream: Ints  # CUDA's, known for copy engines only
    symmetric: npt.NDArray[np.bool_]
    rank: Ints  # as the descriptor gives it, NONE where only the communicator tells
    comm_hash: Ints  # interface v1 to v3

    def __len__(self) -> int:
        return len(self.keys)


def _named(words: Words, decoded: Decoded, events: Events, fields: tuple[str, ...]) -> list[Codes]:
    """Codes of func, dtype and so on."""
    sorts: dict[str, tuple[str, Callable[[str], str], tuple[str, ...]]] = {
        "func": ("function", str, sizes.NUMBERED_FUNCTIONS),
        "dtype": ("datatype", datatype_name, sizes.NUMBERED_DATATYPES),
        "algo": ("algorithm", str, sizes.NUMBERED_ALGORITHMS),
        "proto": ("protocol", str, sizes.NUMBERED_PROTOCOLS),
        "variant": ("variant", str, ()),
    }
    slots, found = events.slots, []
    for field in fields:
        sort, rename, numbered = sorts[field]
        flags = slots["flags"]
        strings = decoded.process.strings
        found.append(translate(words, sort, slots[field], flags, strings, rename, numbered))
    return found


def _signed(values: npt.NDArray[np.uint64]) -> Ints:
    return np.ascontiguousarray(values).view(np.int64)


def _base(decoded: Decoded, kind: str) -> Columns:
    """Columns that every kind of work has, with NONE for what it lacks."""
    events = decoded[kind]
    none = np.full(len(events), NONE, np.int64)
    return {
        "keys": events.keys,
        "enqueue_ns": events.start_ns,
        "stopped_ns": none,
        "thread": events.thread,
        "comm": events.slots["comm"].astype(np.int64),
        "call": decoded.parents(events.slots["parent"]),
        "count": _signed(events.slots["count"]),
        "algorithm": none.astype(np.int8),
        "protocol": none.astype(np.int8),
        "variant": none.astype(np.int8),
        "root": none,
        "peer": none,
        "warps": none,
        "sequence": none,
        "stream": none,
        "symmetric": np.zeros(len(events), bool),
        "counted_in_bytes": np.zeros(len(events), bool),
        "rank": none,
        "comm_hash": np.zeros(len(events), np.int64),
    }


def _coll_columns(decoded: Decoded, words: Words) -> Columns:
    events, columns = decoded["Coll"], _base(decoded, "Coll")
    ext = decoded.extensions["Coll"]
    slots = events.slots
    codes = _named(words, decoded, events, ("func", "dtype", "algo", "proto", "variant"))
    bytes_already = np.isin(codes[0], words.known("function", sizes.COUNTED_IN_BYTES))
    return columns | {
        "group": decoded.parents(ext["parent_group"]),
        "form": np.full(len(events), COLLECTIVE, np.int8),
        "function": codes[0],
        "datatype": codes[1],
        "algorithm": codes[2],
        "protocol": codes[3],
        "variant": codes[4],
        "counted_in_bytes": bytes_already,
        "root": slots["root"].astype(np.int64),
        "channels": slots["channels"].astype(np.int64),
        "warps": slots["warps"].astype(np.int64),
        "sequence": _signed(slots["seq"]),
        "tag": _signed(ext["tag"]),
        "symmetric": (slots["bits"] & layout.COLL_IS_SYMMETRIC) != 0,
        "rank": ext["rank"].astype(np.int64),
        "comm_hash": _signed(ext["comm_hash"]),
    }


def _p2p_columns(decoded: Decoded, words: Words) -> Columns:
    events, columns = decoded["P2p"], _base(decoded, "P2p")
    ext = decoded.extensions["P2p"]
    codes = _named(words, decoded, events, ("func", "dtype"))
    is_send = np.isin(codes[0], words.known("function", ("Send",)))
    extended = (events.slots["flags"] & layout.FLAG_EXT) != 0
    return columns | {
        "group": decoded.parents(events.slots["parent_group"]),
        "form": np.where(is_send, SEND, RECV).astype(np.int8),
        "function": codes[0],
        "datatype": codes[1],
        "peer": events.slots["peer"].astype(np.int64),
        "channels": events.slots["chan"].astype(np.int64),
        "tag": _signed(ext["tag"]),
        "rank": np.where(extended, ext["rank"].astype(np.int64), NONE),
        "comm_hash": _signed(ext["comm_hash"]),
    }


def _ce_columns(decoded: Decoded, words: Words) -> Columns:
    events, columns = decoded["CeColl"], _base(decoded, "CeColl")
    ext = decoded.extensions["CeColl"]
    codes = _named(words, decoded, events, ("func", "dtype"))
    return columns | {
        "stopped_ns": decoded.stop_ns("CeColl"),
        "group": np.full(len(events), NONE, np.int64),
        "form": np.full(len(events), COPY_ENGINE, np.int8),
        "function": codes[0],
        "datatype": codes[1],
        "counted_in_bytes": np.isin(codes[0], words.known("function", sizes.COUNTED_IN_BYTES)),
        "root": events.slots["root"].astype(np.int64),
        "channels": np.zeros(len(events), np.int64),
        "tag": _signed(ext["tag"]),
        "stream": _signed(ext["stream"]),
    }


def works_of(decoded: Decoded, words: Words) -> Works:
    """All works of a process, in the order of their keys."""
    makers = {"Coll": _coll_columns, "P2p": _p2p_columns, "CeColl": _ce_columns}
    used = [kind for kind in makers if len(decoded[kind])] or ["Coll"]
    columns = in_key_order([makers[kind](decoded, words) for kind in used])
    # Before v5 the parent is the Group itself, and there are no API calls.
    early = find(decoded["Group"].keys, columns["call"]) >= 0
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


def launches_of(decoded: Decoded, works: Works, group_calls: Ints) -> Ints:
    """Place of each work's KernelLaunch, NONE where there is none.

    A plan is launched, then reported, by one thread: its launch is the one before it in its stream.
    `group_calls` are the keys of the works' GroupApi, NONE for replays.
    """
    launches = decoded["KernelLaunch"]
    if not len(launches):
        return np.full(len(works), NONE, np.int64)
    parents = decoded.parents(launches.slots["parent"])
    place = np.searchsorted(launches.keys, works.keys) - 1
    at = np.maximum(place, 0)
    right = (
        (place >= 0)
        & (stream_of(launches.keys[at]) == stream_of(works.keys))
        & (parents[at] == group_calls)
        & (launches.slots["comm"][at] == works.comm)
        & (group_calls != NONE)
    )
    if right.all():
        return at
    # Works that another thread reports: the last launch of their group call.
    order = np.argsort(parents, kind="stable")
    last = np.searchsorted(parents[order], group_calls, side="right") - 1
    other = order[np.maximum(last, 0)]
    known = (last >= 0) & (parents[other] == group_calls) & (group_calls != NONE)
    return np.where(right, at, np.where(known, other, NONE))
