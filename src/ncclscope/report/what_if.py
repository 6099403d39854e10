"""Predictions of a replay, and critical paths, as text and JSON."""

from collections.abc import Iterator
from typing import Any

from ncclscope.analysis.time_selection import ReplayedPart
from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.analysis.waiting.path_parts import PathPart, path_parts
from ncclscope.analysis.waiting.prediction import Prediction
from ncclscope.analysis.waiting.what_if import Change
from ncclscope.humanize import duration, duration_range, percent, ranks_in_words, wrapped
from ncclscope.json_answers import VERSION
from ncclscope.model.model import Model
from ncclscope.report.tables import Bar, Cell, Column, Table, plain_lines

_MOST_PARTS = 10
_UNSURE = "the record does not show how much could be gained"
_ASSUMED = "transfers keep their lengths; contention may change with the schedule"


def limits_of(chosen: Model, replayed: ReplayedPart) -> tuple[str, ...]:
    """What was not replayed, because there is too much, in words."""
    if not replayed.words:
        return ()
    operations = len(chosen.tables["operations"]["event"])
    return (f"{operations:,} operations: the replay is of {replayed.words}",)


def as_json(prediction: Prediction, limits: tuple[str, ...] = ()) -> dict[str, Any]:
    """A prediction. `limits`: what was not replayed."""
    return {
        "version": VERSION,
        "run_now_ns": prediction.run_now_ns,
        "run_then_ns": prediction.run_then_ns,
        "step_now_ns": prediction.step_now_ns,
        "step_then_ns": prediction.step_then_ns,
        "error_ns": prediction.error_ns,
        "limits": list(limits),
    }


def _in_words(model: Model, change: Change) -> str:
    names = model.communicator_names
    words = []
    if change.ranks:
        words.append(f"without delays of {ranks_in_words(change.ranks)}")
    words += [f"with the link {a}-{b} as the usual one" for a, b in change.links]
    words += [f"with {names[row]} as communicators like it" for row in change.communicators]
    words += [f"with {names[row]} at {speed:g} GB/s" for row, speed in change.bandwidths]
    words += [f"with free transfers on {names[row]}" for row in change.free]
    return ", ".join(words) or "as it is"


def lines(
    model: Model,
    waiting: Waiting,
    change: Change,
    prediction: Prediction,
    limits: tuple[str, ...] = (),
    width: int = 100,
) -> Iterator[str]:
    """What the run would take, and what it is as long as now. `limits`: what was not replayed."""
    for limit in limits:
        yield from wrapped(f"! {limit}; --since and --until choose a part", width, "  ")
    yield from wrapped(f"{_in_words(model, change)}:", width, "  ")
    yield from wrapped(f"  run   {_run(prediction)}", width, " " * 8)
    is_known = prediction.step_now_ns is not None and prediction.step_then_ns is not None
    if is_known and prediction.is_sure:
        yield (
            f"  step  {duration(prediction.step_then_ns)} instead of "
            f"{duration(prediction.step_now_ns)}"
        )
    yield from wrapped(f"  {_ASSUMED}", width, "  ")
    table = path_table(model, path_parts(waiting, waiting.path))
    if table is not None:
        heading, rows, _ = plain_lines(table, width)
        yield from ("", heading, *rows, *table.notes)


def _run(prediction: Prediction) -> str:
    """What the run would take, as a number where that is sure."""
    now = duration(prediction.run_now_ns)
    if not prediction.is_sure:
        return f"{duration_range(*prediction.range_ns)} instead of {now}: {_UNSURE}"
    return (
        f"{duration(prediction.run_then_ns)} ± {duration(prediction.error_ns)} instead of {now}: "
        f"{percent(max(prediction.gained_share, 0.0))} less"
    )


def path_table(model: Model, parts: tuple[PathPart, ...]) -> Table | None:
    """What the critical path runs through; None without one."""
    total = sum(part.length_ns for part in parts)
    if not total:
        return None
    columns = (
        Column("critical path", right=False), Column("", right=False), Column("length"),
        Column("share"), Column("", right=False, drop=2), Column("edges"),
        Column("beyond the usual"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for part in parts[:_MOST_PARTS]:
        where = f"rank {part.rank}"
        if part.communicator is not None:
            where = f"{model.communicator_names[part.communicator]} {part.function}"
        share = part.length_ns / total
        rows.append(
            (
                where, part.kind, duration(part.length_ns), percent(share), Bar(share),
                f"{part.edges:,}", duration(part.excess_ns),
            )
        )  # fmt: skip
    rest = total - sum(part.length_ns for part in parts[:_MOST_PARTS])
    if rest:
        rows.append(("others", "", duration(rest), percent(rest / total), Bar(0.0), "", ""))
    note = f"all of it: {duration(total)}, without the start-up"
    return Table("critical path", columns, tuple(rows), (note,))


def path_as_json(model: Model, parts: tuple[PathPart, ...]) -> list[dict[str, Any]]:
    """The parts of a critical path; their lengths sum to the path's."""
    return [
        {
            "kind": part.kind,
            "rank": part.rank,
            "communicator": None
            if part.communicator is None
            else model.communicator_names[part.communicator],
            "function": part.function or None,
            "length_ns": part.length_ns,
            "edges": part.edges,
            "excess_ns": part.excess_ns,
        }
        for part in parts
    ]
