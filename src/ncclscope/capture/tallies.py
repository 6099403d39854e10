"""Exact call counts by key, with times: what profile mode records, and every mode keeps."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ncclscope.capture import dtypes, layout
from ncclscope.capture.header import Header
from ncclscope.capture.segment import Slots, open_file
from ncclscope.errors import FormatError

_TALLY = dtypes.OURS.dtypes["Tally"]
_RECORD = np.dtype([("tally", _TALLY), ("times", dtypes.OURS.times)])


@dataclass(frozen=True, slots=True)
class Tally:
    """All calls of one key. `level` tells user calls from NCCL's work and copy-engine work."""

    level: int
    communicator: int  # number; layout.NO_COMM: unknown, or past what the table holds
    function: int  # string id, or v1's number (TALLY_NUMBERS in bits)
    count: int  # elements as NCCL gives them; of a folded key, the power of two below
    datatype: int
    algorithm: int
    protocol: int
    bits: int
    calls: int
    count_sum: int
    times: np.void  # dtypes.OURS.times; zeros where nothing is known


def _entries(records: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    return np.asarray(records[records["tally"]["kind"] == layout.KINDS["Tally"]])


def read_tally_file(path: Path) -> npt.NDArray[np.void]:
    """Records of the tally file by their place in the table; empty where there is none."""
    try:
        header, data = open_file(path)
    except (FormatError, OSError):
        return np.empty(0, _RECORD)
    usable = max(len(data) - header.header_bytes, 0)
    return np.frombuffer(data, _RECORD, usable // _RECORD.itemsize, header.header_bytes)


def arena_tallies(data: memoryview, header: Header) -> Slots:
    """The arena's own table: newer counts, no times."""
    size = header.tally_slots * layout.SLOT_BYTES
    fits = header.tally_offset % layout.SLOT_BYTES == 0 and header.tally_slots <= 1 << 20
    if not fits or header.tally_offset + size > len(data):
        return np.empty(0, _TALLY)
    return np.array(np.frombuffer(data, _TALLY, header.tally_slots, header.tally_offset))


def merge_tallies(records: npt.NDArray[np.void], newer: Slots) -> tuple[Tally, ...]:
    """One Tally per table entry; counts from the arena where it has them."""
    merged = np.zeros(max(len(records), len(newer)), _RECORD)
    merged[: len(records)] = records
    known = newer["kind"] == layout.KINDS["Tally"]
    merged["tally"][: len(newer)][known] = newer[known]
    return tuple(
        Tally(
            level=int(entry["level"]),
            communicator=int(entry["comm"]),
            function=int(entry["func"]),
            count=int(entry["count"]),
            datatype=int(entry["dtype"]),
            algorithm=int(entry["algo"]),
            protocol=int(entry["proto"]),
            bits=int(entry["bits"]),
            calls=int(entry["calls"]),
            count_sum=int(entry["count_sum"]),
            times=times,
        )
        for entry, times in ((record["tally"], record["times"]) for record in _entries(merged))
    )


def bucket_bounds_ns() -> npt.NDArray[np.float64]:
    """Lower bounds of the time histograms' buckets, in ns."""
    per_octave = layout.TIME_BUCKETS_PER_OCTAVE
    buckets = dtypes.OURS.times.fields["gpu_histogram"][0].shape[0]  # type: ignore[index]
    place = np.arange(buckets - 1)
    octave = layout.TIME_FIRST_OCTAVE + place // per_octave
    bounds = 2.0**octave * (1 + (place % per_octave) / per_octave)
    return np.concatenate([[0.0], bounds])
