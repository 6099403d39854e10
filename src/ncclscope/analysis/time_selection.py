"""A part of a run: the model of what began in some time.

Whole instances are kept or left out, by their first arrival: half an AllReduce would look like
ranks that never came. Operations without an instance count by their own start. Totals,
completeness and what is known of processes and communicators stay those of the whole capture.
"""

from dataclasses import dataclass, replace

import numpy as np

from ncclscope.analysis.measures import began_ns, extent
from ncclscope.analysis.run import Run
from ncclscope.analysis.selection import Selection
from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.column_files import absent_column, is_absent
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE, Columns

# Operations that are replayed at once: a replay takes about half a kilobyte of memory for each, and
# a part of a run is a copy of a quarter of one.
MOST_REPLAYED = 8_000_000
_EVERYTHING = slice(None)
_SAMPLE = 1_000_000  # operations that tell when parts of them began
_STRETCHES = 64  # of a part
_LONGEST_STRETCH = 3.0  # times the median: longer ones are idle
# Times the middle: less is noise. In 29 healthy random jobs of tests/support/laboratory, with parts
# of 250 to 24,000 operations, the slowest took 1.05 times as long at the median, 1.16 in a tenth.
_SLOWER = 1.1


def model_between(model: Model, selection: Selection) -> Model:
    """The model of the operations in the selection's time; other conditions are left aside."""
    since_ns, until_ns = selection.since_ns, selection.until_ns
    if since_ns is None and until_ns is None:
        return model
    tables = dict(model.tables)
    operations, instances = tables["operations"], tables["instances"]
    kept_instances = _between(np.asarray(instances["first_start_ns"]), since_ns, until_ns)
    kept = _between(np.asarray(began_ns(operations, _EVERYTHING)), since_ns, until_ns)
    instance = np.asarray(operations["instance"], np.int64)
    matched = instance != NONE
    # An instance without a time on any rank goes where its operations go.
    timeless = np.asarray(instances["first_start_ns"]) == NONE
    kept_instances[instance[matched & kept & timeless[np.where(matched, instance, 0)]]] = True
    kept[matched] = kept_instances[instance[matched]]
    tables["instances"] = _rows(instances, kept_instances)
    tables["operations"] = _rows(operations, kept)
    for column, rows in (("instance", kept_instances), ("part_of", kept)):
        tables["operations"][column] = _renumbered(
            np.asarray(tables["operations"][column], np.int64), rows
        )
    for name in ("steps", "phases"):
        starts = np.asarray(tables[name]["start_ns"])
        tables[name] = _rows(tables[name], _between(starts, since_ns, until_ns))
    began = model.began_ns or (extent(operations) or (0, 0))[0]
    return replace(model, tables=tables, began_ns=began, seal="")


@dataclass(frozen=True, slots=True)
class ReplayedPart:
    """What of a run is replayed at once."""

    model: Model
    words: str  # which operations these are, in seconds as `--since` takes them; "": all


def replayed_part(model: Model) -> ReplayedPart:
    """The model itself, or MOST_REPLAYED operations of the last attempt on end where there are
    more: those that took longest, or the middle of the run where none took notably longer.
    """
    operations = model.tables["operations"]
    count = len(operations["event"])
    if count <= MOST_REPLAYED:
        return ReplayedPart(model, "")
    began = np.asarray(began_ns(operations, _EVERYTHING))
    began = began[Run(model).current & (began != NONE)]
    time, is_slowest = _slowest_or_middle(began, MOST_REPLAYED)
    part = model_between(model, time)
    origin = model.began_ns or (extent(operations) or (0, 0))[0]
    first, last = ((time_ns - origin) / 1e9 for time_ns in Run(part).extent)
    kept = len(part.tables["operations"]["event"])
    where = "where the run was slowest" if is_slowest else "in the middle of the run"
    return ReplayedPart(part, f"{kept:,} {where}, from {first:.3f} to {last:.3f} s")


def _slowest_or_middle(began: Ints, most: int) -> tuple[Selection, bool]:
    """The time in which the `most` operations on end began that took longest, or those in the
    middle; whether it is the former.

    The run is cut into stretches of equally many operations. A part is 64 of them, and as long as
    they are in sum. A stretch counts three times the median at most: a server without requests at
    night, or a checkpoint, is long and not slow.

        stretches, s         1.0  1.1  1.0  90  1.0  1.0  1.3  1.4      a part is two of them
        as they count        1.0  1.1  1.0  3.0 1.0  1.0  1.3  1.4
    """
    if len(began) <= most:
        return Selection(since_ns=int(began.min()) if len(began) else None), False
    sample = np.sort(began[:: max(len(began) // _SAMPLE, 1)])
    count = max(round(_STRETCHES * len(began) / most), _STRETCHES + 1)
    edges = np.quantile(sample, np.linspace(0.0, 1.0, count + 1))
    lengths = np.diff(edges)
    counted = np.minimum(lengths, _LONGEST_STRETCH * np.median(lengths))
    sums = np.convolve(counted, np.ones(_STRETCHES), "valid")
    middle, slowest = (len(sums) - 1) // 2, int(np.argmax(sums))
    is_slowest = bool(sums[slowest] > _SLOWER * sums[middle])
    first = slowest if is_slowest else middle
    until_ns = None if first == len(sums) - 1 else int(edges[first + _STRETCHES])
    return Selection(since_ns=int(edges[first]), until_ns=until_ns), is_slowest


def _between(moments: Ints, since_ns: int | None, until_ns: int | None) -> Bools:
    keep = moments != NONE
    if since_ns is not None:
        keep &= moments >= since_ns
    if until_ns is not None:
        keep &= moments < until_ns
    return np.asarray(keep)


def _rows(table: Columns, kept: Bools) -> Columns:
    count = int(kept.sum())
    return {
        name: absent_column(count, values.dtype) if is_absent(values) else np.asarray(values)[kept]
        for name, values in table.items()
    }


def _renumbered(references: Ints, kept: Bools) -> Ints:
    """References to rows by their new numbers. Rows 1 and 3 of four are kept: 3 becomes 1, 0
    becomes NONE.
    """
    numbers = np.where(kept, np.cumsum(kept) - 1, NONE)
    present = references != NONE
    renumbered = np.full(len(references), NONE, np.int64)
    renumbered[present] = numbers[references[present]]
    return renumbered
