"""Captures with damage that still looks like a capture: bytes, fields, kinds and slots by chance."""

import os
import random
from pathlib import Path

import numpy as np

from ncclscope.capture import dtypes, layout
from ncclscope.capture.header import parse_header

_NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_NUMBERS += (1 << 40, (1 << 61) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_KEPT_BYTES = 16 * layout.SLOT_BYTES
_KINDS = {number: name for name, number in layout.KINDS.items()}


class Damager:
    """Damages files of one capture; the same seed damages the same places."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def damage(self, file: Path) -> str:
        """Writes one kind of damage into a log or metadata file and says which."""
        data = bytearray(file.read_bytes())
        ways = (self._flip, self._field, self._column, self._kind, self._copy, self._cut)
        how = self._draw.choices(ways, (4, 8, 4, 4, 4, 1))[0]
        said = how(data, parse_header(bytes(data), file).header_bytes)
        file.write_bytes(data)
        # The time by which a kept model knows that it is stale may be too coarse for a quick test.
        os.utime(file, ns=(0, self._draw.randrange(1 << 60)))
        return f"{file.name}: {said}"

    def _slots(self, data: bytearray, start: int) -> np.ndarray:
        whole = (len(data) - start) // layout.SLOT_BYTES
        return np.frombuffer(data, dtypes.ANY_SLOT, whole, start)

    def _number(self, size: int) -> int:
        chosen = self._draw.choice((*_NUMBERS, self._draw.getrandbits(64)))
        return chosen & ((1 << 8 * size) - 1)

    def _flip(self, data: bytearray, start: int) -> str:
        place = self._draw.randrange(start, len(data))
        data[place] ^= 1 << self._draw.randrange(8)
        return f"bit at {place}"

    def _chosen_field(self, kind: int) -> tuple[str, int, int]:
        """Name, place in the slot and size of one element of a field."""
        dtype = dtypes.OURS.dtypes[_KINDS[kind]]
        names = [name for name in dtype.names or () if name not in ("kind", "check")]
        name = self._draw.choice(names)
        field, place = (dtype.fields or {})[name][:2]
        each = field.base.itemsize
        return name, place + each * self._draw.randrange(field.itemsize // each), each

    def _field(self, data: bytearray, start: int) -> str:
        """One number of one slot."""
        slots = self._slots(data, start)
        known = np.flatnonzero(np.isin(slots["kind"], list(_KINDS)))
        place = int(self._draw.choice(known.tolist()))
        name, at, size = self._chosen_field(int(slots["kind"][place]))
        at += start + place * layout.SLOT_BYTES
        value = self._number(size)
        data[at : at + size] = value.to_bytes(size, "little")
        return f"{name} of slot {place} = {value:#x}"

    def _column(self, data: bytearray, start: int) -> str:
        """One number of all slots of a kind."""
        kinds = self._slots(data, start)["kind"].copy()
        kind = int(self._draw.choice([one for one in np.unique(kinds).tolist() if one in _KINDS]))
        name, at, size = self._chosen_field(kind)
        value = self._number(size)
        for place in np.flatnonzero(kinds == kind).tolist():
            here = start + place * layout.SLOT_BYTES + at
            data[here : here + size] = value.to_bytes(size, "little")
        return f"{name} of all {_KINDS[kind]} = {value:#x}"

    def _kind(self, data: bytearray, start: int) -> str:
        slots = self._slots(data, start)
        place = self._draw.randrange(len(slots))
        kind = self._draw.choice(list(_KINDS))
        data[start + place * layout.SLOT_BYTES] = kind
        return f"slot {place} is {_KINDS[kind]}"

    def _copy(self, data: bytearray, start: int) -> str:
        """One slot's content in another's place."""
        count = (len(data) - start) // layout.SLOT_BYTES
        source, target = (start + 64 * self._draw.randrange(count) for _ in range(2))
        check = data[target + 4 : target + 8]
        data[target : target + 64] = data[source : source + 64]
        data[target + 4 : target + 8] = check
        return f"slot at {source} copied to {target}"

    def _cut(self, data: bytearray, start: int) -> str:
        """The end is missing."""
        length = self._draw.randrange(min(start + _KEPT_BYTES, len(data)), len(data) + 1)
        del data[length:]
        return f"cut at {length}"
