"""The corridor in which nodes' clocks can run, over one stretch of time.

Each clock's offset from the first node's is taken to be a straight line. Bounds are gathered by
window, each window is closed over all paths between nodes, and the lines that pass between the
upper and the lower limits of all windows give limits at any time. What the lines' slopes may still
be makes a bound weaker the farther it lies from its window's middle, so slopes are found first.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_WINDOWS = 32
_STEEPEST = 6e-4  # quartz is within 1e-4 and daemons slew by 5e-4 at most
_WANDER = 1e-7  # a rate that nothing watches may change by this
_MOST_PASSES = 8
_NOISE_NS = 500.0
_SPARE, _GAIN = 0.7, 0.05  # less room than this may mean a bend, if halves have so much more
_FINE = 0.002  # of the narrowest window: what slopes make of less is not pursued
_SHARES = 4  # of the windows, to see how much of the room is chance
_MOST_CERTAIN = 0.97  # of the room
_STRETCHES, _NEAR = 4, 0.5  # in each of which lines must come so near to both limits
_SHORTEST_NS = 2e9  # shorter stretches are not cut in two
_FEWEST_A_NODE = 8  # likewise those with fewer points
_MOST_PAIRED = 128  # nodes; beyond, limits between pairs are the sums of both nodes'
_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True)
class Points:
    """Bounds by time, nodes numbered from 0: `end` on a is not before `start` on b."""

    a: Ints
    b: Ints
    end: Floats
    start: Floats
    without_drift: bool = False  # chosen as the tightest after drift was taken out

    def between(self, first: float, last: float) -> "Points":
        """Those that end in [first, last)."""
        low, high = np.searchsorted(self.end, (first, last))
        part = slice(int(low), int(high))
        return replace(
            self, a=self.a[part], b=self.b[part], end=self.end[part], start=self.start[part]
        )


@dataclass(frozen=True, slots=True)
class ClockOffsets:
    """At each knot what to add to a node's time, and how far off that may be."""

    knots: Floats
    offset: Floats  # knot x node
    error: Floats  # knot x node, infinite where nothing is known
    between: npt.NDArray[np.float32] | None  # knot x node x node: error of the difference
    spare: float  # how much room lines have: 1 is as much as the narrowest window


def clock_offsets_of(points: Points, nodes: int) -> ClockOffsets:
    """The corridor of all nodes; `points` in the order of `end`."""
    first, last = float(points.end[0]), float(points.end[-1])
    last = np.nextafter(max(last, first + 1e6), np.inf)
    parts = list(_parts(points, nodes, first, last))
    knots = np.concatenate([part.knots for part in parts])
    # Knots at the far ends belong to the outermost parts only.
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
    offset, error = _bridge(knots[keep], offset, error)
    spare = min(part.spare for part in parts)
    return ClockOffsets(knots[keep], offset, error, between, spare)


def _with_limits(parts: list[ClockOffsets]) -> Iterator[tuple[ClockOffsets, float, float]]:
    """Each part with the middles of its first and its last window."""
    for part in parts:
        yield part, float(part.knots[2]), float(part.knots[-3])


def _bridge(knots: Floats, offset: Floats, error: Floats) -> tuple[Floats, Floats]:
    """Where a part knows nothing of a node, the straight way between its neighbours."""
    known = np.isfinite(error)
    for node in np.flatnonzero(known.any(axis=0) & ~known.all(axis=0)).tolist():
        have, lack = known[:, node], ~known[:, node]
        offset[lack, node] = np.interp(knots[lack], knots[have], offset[have, node])
        distance = np.abs(knots[lack][:, None] - knots[have]).min(axis=1)
        nearby = np.interp(knots[lack], knots[have], error[have, node])
        error[lack, node] = nearby + distance * 10 * _WANDER
    return offset, error


def _parts(points: Points, nodes: int, first: float, last: float) -> Iterator[ClockOffsets]:
    """One corridor, or several one after the other where clocks do not run straight."""
    slack = _NOISE_NS
    found = _straight(points, nodes, first, last, 0.0)
    if found is None and points.without_drift:
        points = replace(points, without_drift=False)
        found = _straight(points, nodes, first, last, 0.0)
    found = found or _straight(points, nodes, first, last, slack)
    if found is None or found.spare < _SPARE:
        halves = _cut(points, nodes, first, last, 2)
        if halves and (found is None or _is_bent(points, nodes, first, last, found.spare)):
            for part, begin, end in halves:
                yield from _parts(part, nodes, begin, end)
            return
    while found is None:  # bounds contradict each other: widen all until they do not
        slack *= 2
        found = _straight(points, nodes, first, last, slack)
    yield found


def _cut(
    points: Points, nodes: int, first: float, last: float, count: int
) -> list[tuple[Points, float, float]]:
    """So many parts of equal length, none where they would be too short or too thin."""
    edge = np.linspace(first, last, count + 1).tolist()
    parts = [(points.between(*ends), *ends) for ends in itertools.pairwise(edge)]
    fewest = min(len(part.end) for part, _, _ in parts)
    long_enough = last - first > _SHORTEST_NS * count / 2
    return parts if long_enough and fewest >= _FEWEST_A_NODE * nodes else []


def _is_bent(points: Points, nodes: int, first: float, last: float, spare: float) -> bool:
    """Whether lines have more room in shorter parts, as they have where a clock bends. Where bounds
    are merely few they have less.
    """
    plain = replace(points, without_drift=False)  # quicker, and room is the same
    for count in (2, 4, 8, 16):
        parts = _cut(plain, nodes, first, last, count)
        found = [_straight(part, nodes, begin, end, 0.0) for part, begin, end in parts]
        if found and all(part is not None and part.spare > spare + _GAIN for part in found):
            return True
    return False


def _straight(
    points: Points, nodes: int, first: float, last: float, slack: float
) -> ClockOffsets | None:
    """The corridor of straight lines; None when no lines satisfy all bounds."""
    width = (last - first) / _WINDOWS
    centre = np.linspace(first + width / 2, last - width / 2, _WINDOWS)
    window = np.clip((points.end - first) / width, 0, _WINDOWS - 1).astype(np.int64)
    from_end, from_start = points.end - centre[window], points.start - centre[window]
    slope, slope_error = np.zeros(nodes), np.full(nodes, _STEEPEST)
    slope_error[0] = 0.0
    middle = (first + last) / 2
    for _ in range(_MOST_PASSES):
        limit = points.end - points.start + slack
        limit += slope[points.a] * (points.end - middle) - slope[points.b] * (points.start - middle)
        limit += slope_error[points.a] * np.abs(from_end)
        limit += slope_error[points.b] * np.abs(from_start)
        limits = _by_window(window, points, limit, nodes)
        found = _bands(limits)
        if found is None:
            return None
        low, high = found
        if not _passable(centre, low, high, slope_error).all():
            return None
        spare, narrowest = _room(centre, low, high, slope_error)
        certain = np.zeros(nodes)
        if points.without_drift:
            certain = _certain(centre, low, high, slope_error, spare * narrowest)
            # What limits are still too weak by hides how lines lean.
            certain = np.maximum(certain - slope_error * width, 0.0)
        flattest, steepest = _slopes(centre, low + certain, high - certain, slope_error)
        better = (steepest - flattest) / 2
        if ((better > 0.9 * slope_error) | (better * width < _FINE * narrowest)).all():
            break
        slope, slope_error = slope + (flattest + steepest) / 2, better
    far = max(last - first, 60e9)
    knots = np.concatenate([[first - far, first], centre, [last, last + far]])
    upper = _highest(centre, high, flattest, steepest, knots)
    lower = -_highest(centre, -low, -steepest, -flattest, knots)
    known = np.isfinite(upper) & np.isfinite(lower)
    upper, lower = np.where(known, upper, 0.0), np.where(known, lower, 0.0)
    residual = (upper + lower) / 2
    error: Floats = np.where(known, (upper - lower) / 2, np.inf)
    error[:, 1:] += _unwatched(centre, low, high, knots)[:, 1:]
    offset = residual + slope * (knots[:, None] - middle)
    # A clock may bend so much, to both sides of the lines.
    error = np.maximum(error, np.minimum(2 * (1 - spare), 1.0) * narrowest)
    return ClockOffsets(knots, offset, error, _between(limits, residual), float(spare.min()))


def _by_window(window: Ints, points: Points, limit: Floats, nodes: int) -> Floats:
    """The tightest limit on x_b - x_a by window, a and b."""
    limits = np.full((_WINDOWS, nodes, nodes), np.inf)
    limits[:, np.arange(nodes), np.arange(nodes)] = 0.0
    np.minimum.at(limits.reshape(-1), (window * nodes + points.a) * nodes + points.b, limit)
    return limits


def _bands(limits: Floats) -> tuple[Floats, Floats] | None:
    """Lowest and highest value of each node by window, the first node's being 0; None where limits
    contradict each other.
    """
    high = _shortest(limits)
    low = _shortest(limits.transpose(0, 2, 1))
    if high is None or low is None or (high + low < 0).any():
        return None
    return -low, high


def _shortest(limits: Floats) -> Floats | None:
    """Length of the shortest path from the first node by window; None where a loop is negative."""
    windows, nodes, _ = limits.shape
    found = np.array(limits[:, 0, :])
    step = max(_AT_ONCE // (nodes * nodes), 1)
    for at in range(0, windows, step):
        part = slice(at, at + step)
        for _ in range(nodes + 1):
            shorter = (found[part][:, :, None] + limits[part]).min(axis=1)
            if not (shorter < found[part] - 1e-3).any():
                break
            found[part] = shorter
        else:
            return None
    return None if (found[:, 0] < 0).any() else found


def _slopes(centre: Floats, low: Floats, high: Floats, most: Floats) -> tuple[Floats, Floats]:
    """The flattest and the steepest line of each node that pass all windows."""
    i, j = np.triu_indices(len(centre), 1)
    apart = (centre[j] - centre[i])[:, None]
    steepest = ((high[j] - low[i]) / apart).min(axis=0)
    flattest = ((low[j] - high[i]) / apart).max(axis=0)
    return np.maximum(flattest, -most), np.minimum(steepest, most)


def _passable(centre: Floats, low: Floats, high: Floats, most: Floats) -> npt.NDArray[np.bool_]:
    flattest, steepest = _slopes(centre, low, high, most)
    passable: npt.NDArray[np.bool_] = flattest <= steepest
    return passable


def _room(centre: Floats, low: Floats, high: Floats, most: Floats) -> tuple[Floats, Floats]:
    """By node the narrowest window's half width, and before it how much of that all windows can
    lose until no line passes (from 0 to 1).

    What is on the way for some time at least in each direction leaves its clock that much room on
    both sides together, so lines that need all of the windows' width are not the clock's. A clock
    that bends by up to twice the half width still lets a line pass, but may lie outside the lines'
    limits by then.
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


def _certain(centre: Floats, low: Floats, high: Floats, most: Floats, room: Floats) -> Floats:
    """By node how much of the room on both sides of lines is really there: time on the wire.

    The less the windows, the more room they seem to leave. Of a quarter of them the surplus over
    the truth is several times that of all; so the truth is less far below all than all are below
    a quarter.
    """
    of_share = np.zeros(len(room))
    for number in range(_SHARES):
        part = slice(number, None, _SHARES)
        share, narrowest = _room(centre[part], low[part], high[part], most)
        of_share += np.where(narrowest > 0, share * narrowest, np.inf) / _SHARES
    certain = np.clip(2 * room - of_share, 0.0, _MOST_CERTAIN * room)
    return np.where(_is_steady(centre, low + room, high - room, most, room), certain, 0.0)


def _is_steady(
    centre: Floats, low: Floats, high: Floats, most: Floats, room: Floats
) -> npt.NDArray[np.bool_]:
    """Whether the line with the most room comes near to both limits all along.

    Where one rank is late at first and another one later, limits are near on one side at first and
    on the other side later. The line with the most room leans over then, and is not the clock's.
    """
    flattest, steepest = _slopes(centre, low, high, most)
    line = (flattest + steepest) / 2 * centre[:, None]
    line += ((low - line).max(axis=0) + (high - line).min(axis=0)) / 2
    with np.errstate(invalid="ignore"):  # limits that damage has made infinite
        gaps = (high - line, line - low)
    away = np.maximum.reduce(
        [
            gap[part].min(axis=0)
            for part in np.array_split(np.arange(len(centre)), _STRETCHES)
            for gap in gaps
        ]
    )
    steady: npt.NDArray[np.bool_] = away <= _NEAR * room
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
    """What a clock may have wandered since the nearest window that has both limits."""
    watched = np.isfinite(low) & np.isfinite(high)
    apart = np.abs(knots[:, None] - centre)[:, :, None]
    away = np.where(watched, np.maximum(apart - (centre[1] - centre[0]) / 2, 0.0), np.inf)
    nearest = away.min(axis=1)
    span = knots[-1] - knots[0]
    wandered: Floats = _WANDER * np.where(np.isfinite(nearest), nearest, span)
    return wandered


def _between(limits: Floats, residual: Floats) -> npt.NDArray[np.float32] | None:
    """At each knot how far the difference of two nodes may be off."""
    nodes = limits.shape[1]
    if nodes > _MOST_PAIRED:
        return None
    closed = limits.copy()
    for via in range(nodes):  # Floyd and Warshall's, all windows at once
        np.minimum(closed, closed[:, :, via, None] + closed[:, None, via, :], out=closed)
    middle = residual[2:-2]
    difference = middle[:, None, :] - middle[:, :, None]
    error = np.maximum(closed - difference, closed.transpose(0, 2, 1) + difference)
    out = np.full((len(residual), nodes, nodes), np.inf, np.float32)
    out[2:-2] = error
    return out
