"""What a report's page shows besides its tables: findings, time by rank, pictures of ranks."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ncclscope.analysis.largest_skew import SkewStretch, stretch_of_largest_skew
from ncclscope.analysis.rank_slices import RankSlices, rank_slices
from ncclscope.analysis.selection import Selection
from ncclscope.analysis.summary import Summary
from ncclscope.diagnose.finding import Finding
from ncclscope.humanize import printable
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE
from ncclscope.report.units import size

_SLICES = 160  # of time
_MOST_RANKS = 128  # in a picture
_MOST_STRIP_RANKS, _MOST_BARS = 24, 4000
_WIDEST_CELL = 24  # pixels of a rank pair
Picture = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PageDetails:
    """All of it; what is not known is None."""

    findings: tuple[Finding, ...]
    slices: RankSlices | None
    stretch: SkewStretch | None
    by_function: Picture | None  # waiting by rank and function


def page_details(model: Model, selection: Selection, findings: tuple[Finding, ...]) -> PageDetails:
    """The details of the selected operations."""
    return PageDetails(
        findings,
        rank_slices(model, selection, _SLICES),
        stretch_of_largest_skew(model, selection, _MOST_STRIP_RANKS, _MOST_BARS),
        _waiting_by_function(model, selection),
    )


def pictures(summary: Summary, details: PageDetails) -> dict[str, Picture]:
    """What the page's script draws, by the place where it draws it."""
    made = {
        "slices": _slices(details.slices),
        "functions": details.by_function,
        "pairs": _pairs(summary),
        "strip": _strip(summary.model, details.stretch, summary.began_ns or 0),
    }
    return {name: picture for name, picture in made.items() if picture}


def _slices(slices: RankSlices | None) -> Picture | None:
    if slices is None or len(slices.ranks) < 2:
        return None
    rows = slice(0, _MOST_RANKS)
    return {
        "ranks": slices.ranks[rows],
        "length_us": (slices.ended_ns - slices.began_ns) / 1e3,
        "waiting": np.rint(100 * slices.waiting[rows]).astype(int).tolist(),
        "moving": np.rint(100 * (slices.moving + slices.either)[rows]).astype(int).tolist(),
    }


def _waiting_by_function(model: Model, selection: Selection) -> Picture | None:
    """The share of the time in each function's kernels that a rank waits."""
    operations = model.tables["operations"]
    keep = selection.rows(model, slice(None)) & (np.asarray(operations["part_of"]) == NONE)
    for name in ("wait_ns", "duration_ns", "global_rank", "function"):
        keep &= np.asarray(operations[name]) != NONE
    rows = np.flatnonzero(keep)
    if not len(rows):
        return None
    ranks, row = np.unique(np.asarray(operations["global_rank"])[rows], return_inverse=True)
    functions, column = np.unique(np.asarray(operations["function"])[rows], return_inverse=True)
    sums = np.zeros((2, len(ranks), len(functions)))
    for place, name in enumerate(("wait_ns", "duration_ns")):
        np.add.at(sums[place], (row, column), np.asarray(operations[name])[rows])
    waits, wholes = sums.tolist()
    shares = [
        [round(100 * wait / whole) if whole else None for wait, whole in zip(*pair, strict=True)]
        for pair in zip(waits, wholes, strict=True)
    ]
    return {
        "rows": ranks[:_MOST_RANKS].tolist(),
        "columns": [printable(model.words["function"][code]) for code in functions.tolist()],
        "values": shares[:_MOST_RANKS],
        "widest": 130,
        "every": 100,
    }


def _pairs(summary: Summary) -> Picture | None:
    """Bytes from rank to rank."""
    known = [
        (row.source, row.destination, row.bytes)
        for row in summary.traffic or ()
        if row.source is not None and row.destination is not None
    ]
    ranks = sorted({rank for source, destination, _ in known for rank in (source, destination)})
    if not known or len(ranks) > _MOST_RANKS:
        return None
    place = {rank: number for number, rank in enumerate(ranks)}
    values: list[list[int | None]] = [[None] * len(ranks) for _ in ranks]
    for source, destination, sent in known:
        values[place[source]][place[destination]] = sent
    return {
        "rows": ranks, "columns": ranks, "values": values, "widest": _WIDEST_CELL, "every": 24,
    }  # fmt: skip


def _strip(model: Model, stretch: SkewStretch | None, began_ns: int) -> Picture | None:
    """Operations as bars; times count from the start of what is reported."""
    if stretch is None:
        return None
    operations, rows = model.tables["operations"], stretch.rows
    columns = [
        np.asarray(operations[name])[rows].tolist()
        for name in (
            "global_rank", "start_ns", "wait_ns", "end_ns", "function", "size_bytes",
            "communicator",
        )
    ]  # fmt: skip
    place = {rank: number for number, rank in enumerate(stretch.ranks)}
    names: dict[tuple[str, str, str], int] = {}
    bars = []
    for rank, start, wait, end, function, size_bytes, communicator in zip(*columns, strict=True):
        name = (
            printable(model.words["function"][function]) if function >= 0 else "?",
            size(size_bytes) if size_bytes != NONE else "",
            printable(model.communicator_names[communicator]) if communicator >= 0 else "?",
        )
        known_wait = min(max(wait, 0), end - start)
        bars.append(
            [
                place[rank],
                round((start - stretch.began_ns) / 1e3, 3),
                round(known_wait / 1e3, 3),
                round((end - start) / 1e3, 3),
                names.setdefault(name, len(names)),
            ]
        )
    functions = sorted({name[0] for name in names})
    return {
        "ranks": stretch.ranks,
        "began_us": (stretch.began_ns - began_ns) / 1e3,
        "length_us": (stretch.ended_ns - stretch.began_ns) / 1e3,
        "bars": bars,
        "names": list(names),
        "functions": {name: number for number, name in enumerate(functions)},
    }
