"""A part of a run: the model of what began in some time.

Whole instances are kept or left out, by their first arrival: half an AllReduce would look like
ranks that never came. Operations without an instance count by their own start. Totals,
completeness and what is known of processes and communicators stay those of the whole capture.
"""

from dataclasses import replace

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


def middle_of(model: Model, most: int) -> Selection:
    """The time in the middle of a run in which about `most` operations began; all of it where there
    are no more.
    """
    began = np.asarray(began_ns(model.tables["operations"], _EVERYTHING))
    if len(began) <= most:
        return Selection()
    known = began[began != NONE]
    share = most / len(began) / 2
    since_ns, until_ns = np.quantile(
        known[:: max(len(known) // _SAMPLE, 1)], (0.5 - share, 0.5 + share)
    )
    return Selection(since_ns=int(since_ns), until_ns=int(until_ns))


def replayed_part(model: Model) -> Model:
    """What of a run is replayed: the model itself, or its middle where all of it is too much."""
    return model_between(model, middle_of(model, MOST_REPLAYED))


def middle_in_words(part: Model) -> str:
    """Which part of a run `replayed_part` chose, in seconds as `--since` takes them."""
    began = part.began_ns or 0
    first, last = ((time_ns - began) / 1e9 for time_ns in Run(part).extent)
    operations = len(part.tables["operations"]["event"])
    return f"{operations:,} in the middle of the run, from {first:.3f} to {last:.3f} s"


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
