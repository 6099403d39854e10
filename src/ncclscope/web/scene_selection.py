"""A part of a scene: the operations that a selection keeps, and what happened beside them."""

from collections.abc import Iterator

import numpy as np

from ncclscope.analysis.selection import Selection
from ncclscope.web.bars import Bars, select_bars
from ncclscope.web.kinds import COUNTER, OPERATION, PART, PATH
from ncclscope.web.scene import Lane, Row, Scene


def select_scene(scene: Scene, selection: Selection) -> Scene:
    """The scene with the selected operations. Callbacks and training lanes are of the same ranks
    and time; they are left out where communicators or functions are chosen.
    """
    if selection == Selection() or scene.model is None:
        return scene
    rows_before = len(scene.model.tables["operations"]["event"])
    selected = selection.rows(scene.model, slice(0, rows_before))
    ranks = dict(_ranks_of_rows(scene.root))
    kept: dict[int, Row] = {}
    for number, row in enumerate(scene.rows):
        if row.kind in (OPERATION, PART):
            bars = select_bars(row.bars, selected[row.bars.ref])
        elif row.kind != COUNTER and not _keeps_others(selection, ranks.get(number)):
            continue
        else:
            bars = _in_window(row, selection, scene)
        if len(bars):
            kept[number] = Row(row.kind, bars, row.process, row.clock, row.key, row.line_style)
    rows = list(kept.values())
    timed = [row for row in rows if row.kind not in (COUNTER, PATH)]
    return Scene(
        rows,
        renumber_lane(scene.root, {old: new for new, old in enumerate(kept)}),
        min((row.to_scene(int(row.bars.start_ns[0])) for row in timed), default=scene.first_ns),
        max((row.to_scene(int(row.bars.end_ns[-1])) for row in timed), default=scene.last_ns),
        scene.model,
        scene.processes,
    )


def renumber_lane(lane: Lane, numbers: dict[int, int]) -> Lane:
    """The lane with new numbers of its rows, without those that were left out."""
    copy = Lane(lane.key, lane.level, lane.title, lane.note, lane.state, ids=lane.ids)
    for kind, old in lane.tracks.items():
        remaining = [numbers[number] for number in old if number in numbers]
        if remaining:
            copy.tracks[kind] = remaining
            copy.line_styles = lane.line_styles
    for name, child in lane.children.items():
        copy.children[name] = renumber_lane(child, numbers)
    return copy


def _keeps_others(selection: Selection, rank: int | None) -> bool:
    """Whether rows of a rank that are no operations are kept."""
    if selection.communicators is not None or selection.functions is not None:
        return False
    return selection.ranks is None or rank in selection.ranks


def _ranks_of_rows(lane: Lane) -> Iterator[tuple[int, int | None]]:
    """The numbers of all rows below a lane, with the global rank they are of."""
    for numbers in lane.tracks.values():
        for number in numbers:
            yield number, lane.ids.get("rank")
    for child in lane.children.values():
        yield from _ranks_of_rows(child)


def _in_window(row: Row, selection: Selection, scene: Scene) -> Bars:
    """The bars of a row that overlap the selected time."""
    since = scene.first_ns if selection.since_ns is None else selection.since_ns
    until = scene.last_ns + 1 if selection.until_ns is None else selection.until_ns
    first, last = row.window(since, until)
    starts, ends = np.asarray(row.bars.start_ns), np.asarray(row.bars.end_ns)
    return select_bars(row.bars, (ends >= first) & (starts < last))
