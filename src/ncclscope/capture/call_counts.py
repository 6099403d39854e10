"""Exact call counts by key, with times: what profile mode records, and every mode has."""

import os
from collections.abc import Container
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ncclscope.capture import dtypes, layout
from ncclscope.capture.file_sizes import LARGEST_TALLY
from ncclscope.capture.segment import Slots, open_file, read_file
from ncclscope.errors import FormatError

RECORD = np.dtype([("tally", dtypes.OURS.dtypes["Tally"]), ("times", dtypes.OURS.times)])
NO_CALL_COUNTS, NO_SLOTS = np.empty(0, RECORD), np.empty(0, dtypes.OURS.dtypes["Tally"])
_READ = partial(read_file, largest_bytes=LARGEST_TALLY)
_KEY_FIELDS = ("level", "comm", "func", "count", "dtype", "algo", "proto", "bits")


@dataclass(frozen=True, slots=True)
class CallKey:
    """The key that calls are counted by. Strings are ids of the process, or v1's numbers."""

    level: int  # layout.LEVEL_CALL: the user's calls; LEVEL_WORK, LEVEL_COPY_ENGINE: NCCL's work
    communicator: int  # number; layout.NO_COMM: unknown, or the catch-all
    function: int
    count: int  # elements as NCCL gives them; of a folded key, the power of two below
    datatype: int
    algorithm: int
    protocol: int
    bits: int


@dataclass(frozen=True, slots=True)
class CallCount:
    """All calls of one key."""

    key: CallKey
    calls: int
    count_sum: int
    times: np.void  # dtypes.OURS.times; zeros where nothing is known


def _keys(entries: npt.NDArray[np.void]) -> list[CallKey]:
    return [CallKey(*key) for key in zip(*(entries[n].tolist() for n in _KEY_FIELDS), strict=True)]


def read_call_counts(path: Path, unreadable: list[str] | None = None) -> npt.NDArray[np.void]:
    """Records of the tally file; empty where there is none. One that is there and cannot be read
    is added to `unreadable`, with the reason.
    """
    try:
        header, data = open_file(path, _READ)
    except (FormatError, OSError) as error:
        if unreadable is not None and os.path.lexists(path):
            unreadable.append(str(error))
        return NO_CALL_COUNTS
    times = dtypes.check_schema(header.schema).times  # of an earlier minor version: shorter
    written = np.dtype([("tally", RECORD["tally"]), ("times", times)])
    usable = max(len(data) - header.header_bytes, 0) // written.itemsize
    records = np.frombuffer(data, written, usable, header.header_bytes)
    records = records[records["tally"]["kind"] == layout.KINDS["Tally"]]
    out = np.zeros(len(records), RECORD)
    out["tally"] = records["tally"]
    for name in set(times.names or ()) & set(RECORD["times"].names or ()):
        out["times"][name] = records["times"][name]
    return out


def _folded(key: CallKey) -> CallKey:
    """The key under which a size is counted once there are too many sizes (native/src/tally.h)."""
    power = 1 << key.count.bit_length() - 1 if key.count else 0
    return replace(key, count=power, bits=key.bits | layout.TALLY_FOLDED)


def _add_times(sum_: np.void, more: np.void) -> None:
    for side in ("gpu", "host", "event"):
        count, least = int(sum_[f"{side}_count"]), f"{side}_min_ns"
        if more[f"{side}_count"]:
            sum_[least] = min(sum_[least], more[least]) if count else more[least]
        sum_[f"{side}_max_ns"] = max(sum_[f"{side}_max_ns"], more[f"{side}_max_ns"])
        for name in (f"{side}_count", f"{side}_sum_ns", f"{side}_histogram"):
            sum_[name] += more[name]
    sum_["untimed"] += more["untimed"]
    for name in ("event_grouped", "timing_off"):
        sum_[name] += more[name]
    if not sum_["event_first_sum_ns"]:  # of several keys that were folded into one, the first's
        for name in ("event_first_sum_ns", "event_first_buckets"):
            sum_[name] = more[name]


def _times_by_key(
    records: npt.NDArray[np.void], counted: Container[CallKey]
) -> dict[CallKey, np.void]:
    """Times under the keys that the same calls were counted by: the key itself, the folded one, or
    the catch-all of its level.
    """
    times: dict[CallKey, np.void] = {}
    known = records["times"]["untimed"].any(axis=1)
    for count in ("gpu_count", "host_count", "event_count", "timing_off"):
        known |= records["times"][count] != 0
    for record, own in zip(records[known], _keys(records["tally"][known]), strict=True):
        more = record["times"]
        catch_all = CallKey(own.level, layout.NO_COMM, *[0] * 6)
        key = next((k for k in (own, _folded(own), catch_all) if k in counted), own)
        if key in times:
            with np.errstate(over="ignore"):  # of a damaged file
                _add_times(times[key], more)
        else:
            times[key] = more.copy()
    return times


def merge_call_counts(records: npt.NDArray[np.void], newer: Slots) -> tuple[CallCount, ...]:
    """One CallCount per key: counts of the arena where there is one, times of the file."""
    if not len(records) and not len(newer):
        return ()
    counts: dict[CallKey, list[int]] = {}
    entries = newer if len(newer) else records["tally"]
    entries = entries[entries["calls"] != 0]
    sizes = zip(entries["calls"].tolist(), entries["count_sum"].tolist(), strict=True)
    for key, (calls, count_sum) in zip(_keys(entries), sizes, strict=True):
        sums = counts.setdefault(key, [0, 0])
        sums[0] += calls
        sums[1] += count_sum
    times = _times_by_key(records, counts)
    unknown = np.zeros(1, dtypes.OURS.times)[0]
    for key in times:  # where the file folded keys that the arena has apart
        counts.setdefault(key, [0, 0])
    return tuple(
        CallCount(key, calls, count_sum, times.get(key, unknown))
        for key, (calls, count_sum) in counts.items()
    )


def bucket_bounds_ns() -> npt.NDArray[np.float64]:
    """Lower bounds of the time histograms' buckets, in ns: equal steps within each octave.

    The recorder's side is native/include/ncclscope/time_buckets.h.
    """
    per_octave = layout.TIME_BUCKETS_PER_OCTAVE
    step = np.arange(layout.TIME_BUCKETS - 1)
    octave = layout.TIME_FIRST_OCTAVE + step // per_octave
    bounds = 2.0**octave * (1 + (step % per_octave) / per_octave)
    return np.concatenate([[0.0], bounds])
