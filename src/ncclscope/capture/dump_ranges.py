"""Ranges and marks of a process as plain dictionaries: what `dump` prints of them, between NCCL's
events. Texts are what programs put there; whoever prints them must escape them.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ncclscope.capture import dtypes, layout
from ncclscope.capture.descriptors import ProcessNames
from ncclscope.capture.dump_events import Event
from ncclscope.capture.process import Process
from ncclscope.capture.range_payloads import range_payloads, slots_of
from ncclscope.capture.segment import KEY_SHIFT

RANGE = "Range"
_SOURCES = {
    layout.RANGE_NVTX: "nvtx", layout.RANGE_RECORD_FUNCTION: "record_function",
    layout.RANGE_ENGINE: "engine", layout.RANGE_MODULE: "module", layout.RANGE_API: "api",
}  # fmt: skip
_NUMBERS = {
    layout.PAYLOAD_U64: "<u8", layout.PAYLOAD_I64: "<i8", layout.PAYLOAD_DOUBLE: "<f8",
    layout.PAYLOAD_U32: "<u4", layout.PAYLOAD_I32: "<i4", layout.PAYLOAD_FLOAT: "<f4",
}  # fmt: skip


def range_events(process: Process) -> Iterator[Event]:
    """Ranges and marks in the order of their starts, with the keys of other events."""
    slots, keys = slots_of(process, RANGE)
    if not len(slots):
        return
    names, payloads = ProcessNames(process, {}), range_payloads(process)
    unplaced = _unplaced_texts(process)
    starts = process.clock.to_ns(slots["t0"].astype(np.uint64))
    stops = process.clock.to_ns(slots["t1"].astype(np.uint64))
    threads = _threads(process, keys)
    for place in np.argsort(starts, kind="stable").tolist():
        slot, key = slots[place], keys[place]
        stopped = bool(slot["states"] & layout.STATE_STOPPED)
        yield {
            "event": RANGE,
            "process": process.folder,
            "rank": process.rank,
            "thread": threads[place],
            "id": f"{key >> KEY_SHIFT}.{key & layout.INDEX_MASK}",
            "parent": names.reference(int(slot["parent"])),
            "comm": None,
            "start_ns": int(starts[place]),
            "stop_ns": int(stops[place]) if stopped else None,
            "states": [],
            "fields": _fields(process, slot, unplaced.get(key, ""), payloads.get(key)),
        }


def _fields(
    process: Process, slot: Any, unplaced: str, payload: dict[str, Any] | None
) -> dict[str, Any]:
    domain, category = int(slot["domain"]), int(slot["category"])
    text = process.range_texts.get(int(slot["text"]), "") if slot["text"] else unplaced
    return {
        "text": text,
        "source": _SOURCES.get(int(slot["chan"]), int(slot["chan"])),
        "domain": process.range_domains.get(domain),
        "category": process.range_categories.get((domain, category), category or None),
        "isMark": bool(slot["states"] & layout.STATE_FIRST),
        "payload": _number(slot) if payload is None else payload,
    }


def _number(slot: Any) -> int | float | None:
    """A payload that is one number; None where there is none, or where it is no finite number."""
    code = _NUMBERS.get(int(slot["payload_type"]))
    if code is None:
        return None
    value: int | float = np.frombuffer(slot["payload"].tobytes(), code)[0].item()
    return value if np.isfinite(value) else None


def _unplaced_texts(process: Process) -> dict[int, str]:
    """Texts that found no place in the table, by the keys of their ranges: the slot before."""
    slots, keys = slots_of(process, "RangeText")
    texts = slots.view(dtypes.OURS.dtypes["RangeText"])["text"]
    return {
        key - 1: text.tobytes().split(b"\0", 1)[0].decode("utf-8", "replace")
        for key, text in zip(keys, texts, strict=True)
    }


def _threads(process: Process, keys: list[int]) -> list[int]:
    blocks = process.slots.blocks
    places = np.searchsorted(blocks.key, np.array(keys, np.int64), side="right") - 1
    return [int(thread) for thread in blocks.tid[places]]
