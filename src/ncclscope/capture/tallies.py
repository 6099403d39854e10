"""Exact call counts by key, with times: what profile mode records, and every mode keeps."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ncclscope.capture import dtypes, layout
from ncclscope.capture.segment import Slots, open_file
from ncclscope.errors import FormatError

_TALLY = dtypes.OURS.dtypes["Tally"]
_RECORD = np.dtype([("tally", _TALLY), ("times", dtypes.OURS.times)])
_KEY_FIELDS = ("level", "comm", "func", "count", "dtype", "algo", "proto", "bits")


@dataclass(frozen=True, slots=True)
class TallyKey:
    """What calls are counted by. Strings are ids of the process, or v1's numbers."""

    level: int  # layout.LEVEL_CALL: the user's calls; LEVEL_WORK, LEVEL_COPY_ENGINE: NCCL's work
    communicator: int  # number; layout.NO_COMM: unknown, or the catch-all
    function: int
    count: int  # elements as NCCL gives them; of a folded key, the power of two below
    datatype: int
    algorithm: int
    protocol: int
    bits: int


@dataclass(frozen=True, slots=True)
class Tally:
    """All calls of one key."""

    key: TallyKey
    calls: int
    count_sum: int
    times: np.void  # dtypes.OURS.times; zeros where nothing is known


def _key(entry: np.void) -> TallyKey:
    return TallyKey(*(int(entry[name]) for name in _KEY_FIELDS))


def read_tally_file(path: Path) -> npt.NDArray[np.void]:
    """Records of the tally file; empty where there is none."""
    try:
        header, data = open_file(path)
    except (FormatError, OSError):
        return np.empty(0, _RECORD)
    usable = max(len(data) - header.header_bytes, 0) // _RECORD.itemsize
    records = np.frombuffer(data, _RECORD, usable, header.header_bytes)
    return np.array(records[records["tally"]["kind"] == layout.KINDS["Tally"]])


def merge_tallies(records: npt.NDArray[np.void], newer: Slots) -> tuple[Tally, ...]:
    """One Tally per key: counts from the arena where there is one, times from the file."""
    times = {_key(record["tally"]): record["times"] for record in records}
    counts: dict[TallyKey, list[int]] = {}
    for entry in newer if len(newer) else records["tally"]:
        sums = counts.setdefault(_key(entry), [0, 0])
        sums[0] += int(entry["calls"])
        sums[1] += int(entry["count_sum"])
    unknown = np.zeros(1, dtypes.OURS.times)[0]
    return tuple(
        Tally(key, calls, count_sum, times.get(key, unknown))
        for key, (calls, count_sum) in counts.items()
    )


def bucket_bounds_ns() -> npt.NDArray[np.float64]:
    """Lower bounds of the time histograms' buckets, in ns."""
    per_octave = layout.TIME_BUCKETS_PER_OCTAVE
    place = np.arange(layout.TIME_BUCKETS - 1)
    octave = layout.TIME_FIRST_OCTAVE + place // per_octave
    bounds = 2.0**octave * (1 + (place % per_octave) / per_octave)
    return np.concatenate([[0.0], bounds])
