"""Payloads of ranges, put together from their slots: what NCCL says about init and split."""

import numpy as np

from ncclscope.capture import dtypes, layout
from ncclscope.capture.process import Process
from ncclscope.capture.range_names import Value, payload_values
from ncclscope.capture.segment import KEY_SHIFT, Slots, expand

_OWN = layout.slot_places("Range")["payload"].offset  # the first bytes are in the Range itself
_OWN_BYTES = 16
_LONGEST = 255


def slots_of(process: Process, kind: str) -> tuple[Slots, list[int]]:
    """All slots of a kind with their keys (stream << 48 | index), newest versions."""
    log = process.slots
    rows = expand(log.blocks.row, log.blocks.count)
    keys = expand(log.blocks.key, log.blocks.count)
    kinds = np.concatenate([np.empty(0, np.uint8), *(part["kind"] for part in log.segments)])
    chosen = kinds[rows] == layout.KINDS[kind]
    return log.take(rows[chosen]).view(dtypes.OURS.dtypes[kind]), keys[chosen].tolist()


def _key_of(handle: int, nonce: int) -> int:
    """The key of a handle of this process, -1 for anything else."""
    stream = handle >> layout.INDEX_BITS & layout.CONTEXT_STREAM
    ours = handle >> layout.HANDLE_BITS == nonce
    return stream << KEY_SHIFT | handle & layout.INDEX_MASK if ours else -1


def range_payloads(process: Process) -> dict[int, dict[str, Value]]:
    """By key (stream << 48 | index) of a range the fields of its payload, where a schema says what
    they are. Pieces that are missing are zero.
    """
    contents: dict[int, bytearray] = {}
    schemas: dict[int, int] = {}
    ranges, keys = slots_of(process, "Range")
    for place in np.flatnonzero(ranges["payload_type"] == layout.PAYLOAD_SCHEMA).tolist():
        slot, key = ranges[place], keys[place]
        length = int(slot["payload_bytes"])
        own = slot.tobytes()[_OWN : _OWN + min(length, _OWN_BYTES)]
        contents[key] = bytearray(own.ljust(length, b"\0"))
        schemas[key] = int(slot["schema"])
    for piece in slots_of(process, "RangePayload")[0]:
        key, length = _key_of(int(piece["parent"]), process.header.nonce), int(piece["bytes"])
        offset = int(piece["offset"])
        if key < 0 or length > _LONGEST or offset >= length:
            continue
        content = contents.setdefault(key, bytearray(length))
        end = min(offset + len(piece["data"]), len(content))
        content[offset:end] = piece["data"].tobytes()[: max(end - offset, 0)]
        schemas.setdefault(key, int(piece["schema"]))
    return {
        key: payload_values(process.range_schemas[schemas[key]], bytes(content))
        for key, content in contents.items()
        if schemas[key] in process.range_schemas
    }
