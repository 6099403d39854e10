"""The stretch of time around the collective whose ranks arrived farthest apart."""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.selection import Selection
from ncclscope.arrays.types import Ints
from ncclscope.model.model import Model
from ncclscope.model.schema import COLLECTIVE, NONE

_LEAST_NS, _MOST_NS = 1_000_000, 200_000_000
_START_UP = 0.1  # of the instances: their ranks come from loading and compiling


@dataclass(frozen=True, slots=True)
class SkewStretch:
    """Operations of some ranks in a stretch of time."""

    began_ns: int
    ended_ns: int
    ranks: tuple[int, ...]  # global, in order
    rows: Ints  # of `operations`, by start
    late_rank: int | None  # that came last to the collective


def stretch_of_largest_skew(
    model: Model, selection: Selection, most_ranks: int, most_rows: int
) -> SkewStretch | None:
    """The stretch, four times as long as the skew; None where no collective was compared."""
    operations, instances = model.tables["operations"], model.tables["instances"]
    skew = np.asarray(instances["skew_ns"], np.int64).copy()
    skew[np.asarray(instances["form"]) != COLLECTIVE] = NONE
    selected = selection.rows(model, slice(None)) & (np.asarray(operations["part_of"]) == NONE)
    of_selected = np.asarray(operations["instance"], np.int64)[selected]
    chosen = np.unique(of_selected[of_selected != NONE])
    chosen = chosen[skew[chosen] > 0]
    if not len(chosen):
        return None
    ordered = chosen[np.argsort(np.asarray(instances["first_start_ns"])[chosen], kind="stable")]
    settled = ordered[int(_START_UP * len(ordered)) :]
    instance = int(settled[np.argmax(skew[settled])])
    first = int(instances["first_start_ns"][instance])
    length = min(max(4 * int(skew[instance]), _LEAST_NS), _MOST_NS)
    began, ended = first - length // 4, first - length // 4 + length
    members = np.flatnonzero(np.asarray(operations["instance"]) == instance)
    arrivals = np.asarray(operations["start_ns"])[members]
    of_members = np.asarray(operations["global_rank"])[members]
    late = int(of_members[np.argmax(arrivals)])
    ranks = _ranks_around(np.unique(of_members[of_members != NONE]), late, most_ranks)
    start, end = np.asarray(operations["start_ns"]), np.asarray(operations["end_ns"])
    shown = selected & (start != NONE) & (end != NONE) & (start < ended) & (end > began)
    rows = np.flatnonzero(shown & np.isin(operations["global_rank"], ranks))
    rows = rows[np.argsort(start[rows], kind="stable")][:most_rows]
    return SkewStretch(began, ended, tuple(ranks.tolist()), rows, late if late != NONE else None)


def _ranks_around(ranks: Ints, late: int, most: int) -> Ints:
    """At most `most` ranks, the late one among them."""
    place = int(np.searchsorted(ranks, late))
    first = min(max(place - most // 2, 0), max(len(ranks) - most, 0))
    return ranks[first : first + most]
