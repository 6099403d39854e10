"""Offsets of the nodes' clocks from the first node's, their errors, and how far they may drift.

Each offset is taken to be a straight line over a stretch of time. The stretch is cut into windows;
the bounds of a window are closed over all paths between nodes; and the lines that pass between the
lower and the upper limits of all windows give limits at any time. A bound is the weaker the farther
it lies from its window's centre, by what the slope may still be, so slopes are narrowed first, in
several passes. Where no straight line fits, or shorter stretches leave lines clearly more slack,
the stretch is cut in two: the clock bends.

Example with two nodes, times in µs; x is what to add to node 1's time, 1000 in truth, and messages
take 30:

- Node 0 arrives last, at 5000 on its clock. Node 1 ends 30 later: 4030 on its own. An end is not
  before that start, so 4030 + x >= 5000: x >= 970.
- Node 1 arrives last, at 5000 on its clock (6000 on node 0's). Node 0 ends at 6030, which is not
  before that start: 5000 + x <= 6030, so x <= 1030.
- In this window the offset is 1000 with an error of 30: the time that a message takes one way.
- A minute later the same gives 1570 <= x <= 1630. Lines through both windows rise by at least
  (1570 - 1030) / 60 s = 9 ppm and by at most (1630 - 970) / 60 s = 11 ppm; half-way between the
  windows x lies between 1270 and 1330.

Those lines use up all of the limits' width. But messages need their time in both directions: the
true line keeps away from both limits. How far it surely does (`_guaranteed_slack`) narrows the
slope: with 25 of the 30 guaranteed, it is (1595 - 1005) / 60 s to (1605 - 995) / 60 s, 9.8 to 10.2
ppm. That decides how good offsets are at the ends of a capture, beyond the last tight bound.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.types import Floats, Ints
from ncclscope.model.align.stretch import Points, Slopes, Stretch

# All but _WANDER and _FAR_NS were tried with smaller and larger values on ten simulated jobs whose
# clocks are known (2 to 8 nodes, few operations, late ranks that change, bends), 17 November 2026:
# the truth was inside the error every time. Where the error grew, the line says by how much.
_STEEPEST = 6e-4  # quartz drifts by up to 1e-4, and daemons slew clocks by up to 5e-4
_WANDER = 1e-7  # by which the rate of a clock may change while no bound watches it
_MOST_PASSES = 8  # that narrow slopes; they end sooner when slopes no longer change
_NOISE_NS = 500.0  # by which bounds are widened first where they contradict each other
# A line that keeps less than this share of the slack may follow a clock that bends, if the lines
# of shorter parts keep so much more. With 0.9: 1.3 times the error where the late rank changes.
_MAY_BEND, _BEND_GAIN = 0.7, 0.05
_FINE_ENOUGH = 0.002  # of the narrowest window: what slopes make of less is not pursued
_QUARTERS = 4  # parts of the windows that show what chance adds to slack
_MOST_GUARANTEED = 0.97  # of the slack. With 0.8: 1.18 for 1.09 times the least error, at the ends
# Sections of a stretch in each of which the line must come this near to both limits, as a share of
# the slack. With 8 sections 500 operations on 8 nodes are too few: 1.36 for 1.09.
_SECTIONS, _NEAR = 4, 0.5
_SHORTEST_NS = 2e9  # shorter stretches are not cut in two
_FEWEST_A_NODE = 8  # bounds; stretches with fewer are not cut either
_FAR_NS = 60e9  # how far beyond the first and the last bound offsets are given, at least


@dataclass(frozen=True, slots=True)
class ClockOffsets:
    """At each knot what to add to a node's time, and how far that may be off."""

    knots: Floats
    offset: Floats  # knot x node
    error: Floats  # knot x node, infinite where nothing is known
    between: npt.NDArray[np.float32] | None  # knot x node x node: error of the difference
    slack_ratio: float  # slack of lines, of the narrowest window's half width: from 0 to 1


def clock_offsets_of(points: Points, nodes: int) -> ClockOffsets:
    """The offsets of all nodes."""
    first, last = points.span
    last = np.nextafter(max(last, first + 1e6), np.inf)
    parts = list(_parts(points, nodes, first, last))
    knots = np.concatenate([part.knots for part in parts])
    # Knots beyond the first and last window are kept of the outermost parts only.
    keep = np.concatenate(
        [
            (part.knots >= (low if number else -np.inf))
            & (part.knots <= (high if number < len(parts) - 1 else np.inf))
            for number, (part, low, high) in enumerate(_with_limits(parts))
        ]
    )
    offset = np.concatenate([part.offset for part in parts])[keep]
    error = np.concatenate([part.error for part in parts])[keep]
    pairs = [part.between for part in parts if part.between is not None]
    between = np.concatenate(pairs)[keep] if pairs else None
    offset, error = _interpolate_gaps(knots[keep], offset, error)
    slack_ratio = min(part.slack_ratio for part in parts)
    return ClockOffsets(knots[keep], offset, error, between, slack_ratio)


def _with_limits(parts: list[ClockOffsets]) -> Iterator[tuple[ClockOffsets, float, float]]:
    """Each part with the centres of its first and its last window."""
    for part in parts:
        yield part, float(part.knots[2]), float(part.knots[-3])


def _interpolate_gaps(knots: Floats, offset: Floats, error: Floats) -> tuple[Floats, Floats]:
    """Offsets and errors where a part has no bounds of a node: straight between its neighbours."""
    known = np.isfinite(error)
    for node in np.flatnonzero(known.any(axis=0) & ~known.all(axis=0)).tolist():
        have, lack = known[:, node], ~known[:, node]
        offset[lack, node] = np.interp(knots[lack], knots[have], offset[have, node])
        distance = np.abs(knots[lack][:, None] - knots[have]).min(axis=1)
        nearby = np.interp(knots[lack], knots[have], error[have, node])
        error[lack, node] = nearby + distance * 10 * _WANDER
    return offset, error


def _parts(points: Points, nodes: int, first: float, last: float) -> Iterator[ClockOffsets]:
    """The offsets of one stretch, or of several one after the other where clocks bend."""
    widening = _NOISE_NS
    offsets = _straight(points, nodes, first, last, 0.0)
    if offsets is None and points.without_drift:
        points = points.with_drift()
        offsets = _straight(points, nodes, first, last, 0.0)
    offsets = offsets or _straight(points, nodes, first, last, widening)
    if offsets is None or offsets.slack_ratio < _MAY_BEND:
        halves = _cut(points, nodes, first, last, 2)
        if halves and (
            offsets is None or _is_bent(points, nodes, first, last, offsets.slack_ratio)
        ):
            for part, begin, end in halves:
                yield from _parts(part, nodes, begin, end)
            return
    while offsets is None:  # bounds contradict each other: widen all until they do not
        widening *= 2
        offsets = _straight(points, nodes, first, last, widening)
    yield offsets


def _cut(
    points: Points, nodes: int, first: float, last: float, count: int
) -> list[tuple[Points, float, float]]:
    """`count` parts of equal length; none where they would be too short or have too few points."""
    edge = np.linspace(first, last, count + 1).tolist()
    parts = [(points.between(*ends), *ends) for ends in itertools.pairwise(edge)]
    fewest = min(len(part) for part, _, _ in parts)
    long_enough = last - first > _SHORTEST_NS * count / 2
    return parts if long_enough and fewest >= _FEWEST_A_NODE * nodes else []


def _is_bent(points: Points, nodes: int, first: float, last: float, slack_ratio: float) -> bool:
    """Whether lines have more slack in shorter parts, as they have where a clock bends. Where there
    are merely few bounds, they have less.
    """
    plain = points.with_drift()  # quicker, and slack is the same
    for count in (2, 4, 8, 16):
        parts = _cut(plain, nodes, first, last, count)
        offsets = [_straight(part, nodes, begin, end, 0.0) for part, begin, end in parts]
        if offsets and all(
            part is not None and part.slack_ratio > slack_ratio + _BEND_GAIN for part in offsets
        ):
            return True
    return False


def _straight(
    points: Points, nodes: int, first: float, last: float, widening: float
) -> ClockOffsets | None:
    """Offsets as straight lines; None when no lines satisfy all bounds. `widening`: what to add to
    every bound.
    """
    stretch = Stretch(first, last)
    centre, width, middle = stretch.centre, stretch.width, stretch.middle
    slope, slope_error = np.zeros(nodes), np.full(nodes, _STEEPEST)
    slope_error[0] = 0.0
    for _ in range(_MOST_PASSES):
        limits = points.limits(stretch, Slopes(slope, slope_error, widening))
        bands = limits.bands()
        if bands is None:
            return None
        low, high = bands
        if not _passable(centre, low, high, slope_error).all():
            return None
        slack_ratio, narrowest = _slack(centre, low, high, slope_error)
        surely = np.zeros(nodes)
        if points.without_drift:
            surely = _guaranteed_slack(centre, low, high, slope_error, slack_ratio * narrowest)
            # Limits are still too weak by what slopes may be: that much of the slack is not real.
            surely = np.maximum(surely - slope_error * width, 0.0)
        flattest, steepest = _slopes(centre, low + surely, high - surely, slope_error)
        better = (steepest - flattest) / 2
        if ((better > 0.9 * slope_error) | (better * width < _FINE_ENOUGH * narrowest)).all():
            break
        slope, slope_error = slope + (flattest + steepest) / 2, better
    far = max(last - first, _FAR_NS)
    knots = np.concatenate([[first - far, first], centre, [last, last + far]])
    upper = _highest(centre, high, flattest, steepest, knots)
    lower = -_highest(centre, -low, -steepest, -flattest, knots)
    known = np.isfinite(upper) & np.isfinite(lower)
    upper, lower = np.where(known, upper, 0.0), np.where(known, lower, 0.0)
    residual = (upper + lower) / 2
    error: Floats = np.where(known, (upper - lower) / 2, np.inf)
    error[:, 1:] += _unwatched(centre, low, high, knots)[:, 1:]
    offset = residual + slope * (knots[:, None] - middle)
    # A clock may bend by the slack that lines lack, to both sides of them.
    error = np.maximum(error, np.minimum(2 * (1 - slack_ratio), 1.0) * narrowest)
    between = limits.between(residual)
    return ClockOffsets(knots, offset, error, between, float(slack_ratio.min()))


@cache
def _pairs(count: int) -> tuple[Ints, Ints]:
    """The places of all pairs; made once, because slopes are narrowed thousands of times."""
    return np.triu_indices(count, 1)


def _slopes(centre: Floats, low: Floats, high: Floats, most: Floats) -> tuple[Floats, Floats]:
    """Slopes of the flattest and the steepest line of each node that pass all windows; `most`: the
    largest slope that is possible.
    """
    i, j = _pairs(len(centre))
    apart = (centre[j] - centre[i])[:, None]
    steepest = ((high[j] - low[i]) / apart).min(axis=0)
    flattest = ((low[j] - high[i]) / apart).max(axis=0)
    return np.maximum(flattest, -most), np.minimum(steepest, most)


def _passable(centre: Floats, low: Floats, high: Floats, most: Floats) -> npt.NDArray[np.bool_]:
    flattest, steepest = _slopes(centre, low, high, most)
    passable: npt.NDArray[np.bool_] = flattest <= steepest
    return passable


def _slack(centre: Floats, low: Floats, high: Floats, most: Floats) -> tuple[Floats, Floats]:
    """By node how much of the narrowest window's half width all windows can lose until no line
    passes (from 0 to 1), and that half width.

    Messages take some time in each direction, so the clock keeps away from both limits: lines that
    need all of the windows' width are not the clock's. A clock that bends by up to twice the half
    width still lets a line pass, but may lie outside the lines' limits by then.
    """
    narrowest = ((high - low) / 2).min(axis=0)
    narrowest = np.where(np.isfinite(narrowest), narrowest, 0.0)
    fits, fails = np.zeros(len(narrowest)), np.ones(len(narrowest))
    for _ in range(6):
        share = (fits + fails) / 2
        lost = share * narrowest
        passable = _passable(centre, low + lost, high - lost, most)
        fits, fails = np.where(passable, share, fits), np.where(passable, fails, share)
    return fits, narrowest


def _guaranteed_slack(
    centre: Floats, low: Floats, high: Floats, most: Floats, slack: Floats
) -> Floats:
    """By node how much of the slack on both sides of lines is real: time on the wire.

    Limits lie above the truth by chance: in few operations a message is never as quick as it can
    be. The fewer the windows, the larger that surplus: of a quarter of them it is several times
    that of all. So the truth is closer to what all windows show than that is to what quarters show.

    Example: all windows leave 30 µs of slack, quarters of them 34 µs on average. The truth is less
    than 4 µs below 30 µs: 26 µs are guaranteed.
    """
    of_quarter = np.zeros(len(slack))
    for number in range(_QUARTERS):
        part = slice(number, None, _QUARTERS)
        ratio, narrowest = _slack(centre[part], low[part], high[part], most)
        of_quarter += np.where(narrowest > 0, ratio * narrowest, np.inf) / _QUARTERS
    surely = np.clip(2 * slack - of_quarter, 0.0, _MOST_GUARANTEED * slack)
    return np.where(_is_steady(centre, low + slack, high - slack, most, slack), surely, 0.0)


def _is_steady(
    centre: Floats, low: Floats, high: Floats, most: Floats, slack: Floats
) -> npt.NDArray[np.bool_]:
    """Whether the line with the most slack comes near to both limits all along.

    Where one rank is late at first and another one later, limits are near on one side at first and
    on the other side later. The line with the most slack leans over then, and is not the clock's.
    """
    flattest, steepest = _slopes(centre, low, high, most)
    line = (flattest + steepest) / 2 * centre[:, None]
    with np.errstate(invalid="ignore"):  # nodes without limits, or with what damage has made
        line += ((low - line).max(axis=0) + (high - line).min(axis=0)) / 2
        gaps = (high - line, line - low)
    away = np.maximum.reduce(
        [
            gap[part].min(axis=0)
            for part in np.array_split(np.arange(len(centre)), _SECTIONS)
            for gap in gaps
        ]
    )
    steady: npt.NDArray[np.bool_] = away <= _NEAR * slack
    return steady


def _highest(
    centre: Floats, high: Floats, flattest: Floats, steepest: Floats, knots: Floats
) -> Floats:
    """The highest value at each knot of lines that stay below `high` at all centres."""
    out = np.empty((len(knots), high.shape[1]))
    for k, knot in enumerate(knots.tolist()):
        apart = (knot - centre)[:, None]
        out[k] = (high + np.maximum(apart * flattest, apart * steepest)).min(axis=0)
        before, after = np.flatnonzero(centre < knot), np.flatnonzero(centre > knot)
        if len(before) and len(after):
            left, right = knot - centre[before][:, None], centre[after] - knot
            share = left / (left + right)
            crossing = high[before][:, None] * (1 - share)[..., None]
            crossing = crossing + high[after] * share[..., None]
            out[k] = np.minimum(out[k], crossing.min(axis=(0, 1)))
    return out


def _unwatched(centre: Floats, low: Floats, high: Floats, knots: Floats) -> Floats:
    """By how much a clock may have wandered since the nearest window with both limits."""
    watched = np.isfinite(low) & np.isfinite(high)
    apart = np.abs(knots[:, None] - centre)[:, :, None]
    away = np.where(watched, np.maximum(apart - (centre[1] - centre[0]) / 2, 0.0), np.inf)
    nearest = away.min(axis=1)
    span = knots[-1] - knots[0]
    wandered: Floats = _WANDER * np.where(np.isfinite(nearest), nearest, span)
    return wandered
