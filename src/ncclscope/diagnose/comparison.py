"""Two captures against each other: what became slower or faster, by how much and how surely; what
appeared and what vanished. By communicator, function, size and datatype.

One call on all ranks is one sample. Its time is the shortest over its ranks: what everybody's
arrival adds is compared apart. Intervals come from resampling blocks of neighbouring calls, because
neighbours resemble each other.
"""

import re
from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.distinct import distinct_rows
from ncclscope.analysis.measures import percentiles
from ncclscope.analysis.run import Run
from ncclscope.arrays.types import Floats
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE, RECV

SLOWER, FASTER, SAME, UNRESOLVED = "slower", "faster", "same", "unresolved"
MATTERS = 0.05  # a change of the median that is worth a word
LEAST = 8  # calls on each side
_MOST = 4000  # samples of one side; beyond, every so many-th
_RESAMPLES, _BLOCK = 400, 8
_INTERVAL = (0.5, 99.5)  # percent
_WEIGHT = 0.01  # of the time of all calls: less does not decide the verdict

Key = tuple[str, str, int, str]  # communicator, function, bytes, datatype


@dataclass(frozen=True, slots=True)
class Spread:
    """Times of one kind of call, in ns."""

    calls: int
    total: float
    median: float
    p99: float
    shortest: float
    longest: float
    wait: float | None  # median of what the longest rank took beyond the shortest


@dataclass(frozen=True, slots=True)
class Change:
    """One kind of call in both captures."""

    key: Key
    a: Spread
    b: Spread
    ratio: float  # of medians, b / a
    low: float  # its interval
    high: float
    verdict: str
    weight: float  # share of the time of all calls, the larger of both


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything."""

    changes: tuple[Change, ...]  # what decides first
    appeared: tuple[tuple[Key, int], ...]  # with calls
    vanished: tuple[tuple[Key, int], ...]
    verdict: str
    ratio: float | None  # of the time on the wire of what both have, weighted as in the first
    incomplete: tuple[str, str]  # what is missing of each
    timed: tuple[int, int] = (0, 0)  # calls with a time, of each
    simulated: tuple[bool, bool] = (False, False)


@dataclass(frozen=True, slots=True)
class _Samples:
    times: Floats
    waits: Floats
    calls: int


def _base_name(name: str) -> str:
    """A communicator's name without the number that tells equal ones apart."""
    return re.sub(r"#\d+$", "", name)


def _samples(model: Model) -> dict[Key, _Samples]:
    run = Run(model)
    operations = run.operations
    timed = run.current & (operations["duration_ns"] > 0) & (operations["instance"] != NONE)
    rows = np.flatnonzero(timed & (operations["form"] != RECV))
    if not len(rows):
        return {}
    instance = run.column("instance", rows)
    order = np.argsort(instance, kind="stable")
    rows = rows[order]
    _, first = np.unique(instance[order], return_index=True)
    duration = run.column("duration_ns", rows).astype(np.float64)
    shortest = np.minimum.reduceat(duration, first)
    wait = np.maximum.reduceat(duration, first) - shortest
    heads = rows[first]
    names = [_base_name(name) for name in model.communicator_names]
    distinct = sorted(set(names))
    number = np.array([distinct.index(name) for name in names])
    columns = [
        number[run.column("communicator", heads)],
        *(run.column(name, heads) for name in ("function", "size_bytes", "datatype")),
    ]
    kinds, kind = distinct_rows(columns)
    start = run.column("start_ns", heads)
    samples = {}
    for place, (comm, function, size, datatype) in enumerate(kinds.tolist()):
        own = np.flatnonzero(kind == place)
        own = own[np.argsort(start[own], kind="stable")]
        some = own[:: max(len(own) // _MOST, 1)]
        key = distinct[comm], run.word("function", function), size, run.word("datatype", datatype)
        samples[key] = _Samples(shortest[some], wait[some], len(own))
    return samples


def _spread(samples: _Samples) -> Spread:
    times = samples.times
    median, p99 = percentiles(times)
    return Spread(
        calls=samples.calls,
        total=float(times.mean()) * samples.calls,
        median=median,
        p99=p99,
        shortest=float(times.min()),
        longest=float(times.max()),
        wait=percentiles(samples.waits)[0],
    )


def _resampled(times: Floats, rng: np.random.Generator) -> Floats:
    """Medians of resampled blocks."""
    size = min(len(times), 1000)
    block = max(min(_BLOCK, size // 4), 1)
    starts = rng.integers(0, len(times) - block + 1, (_RESAMPLES, -(-size // block)))
    places = (starts[:, :, None] + np.arange(block)).reshape(_RESAMPLES, -1)
    return np.asarray(np.median(times[places], axis=1))


def _change(key: Key, a: _Samples, b: _Samples, whole: tuple[float, float]) -> Change:
    of_a, of_b = _spread(a), _spread(b)
    ratio = of_b.median / max(of_a.median, 1.0)
    low, high, verdict = 0.0, np.inf, UNRESOLVED
    if min(len(a.times), len(b.times)) >= LEAST:
        rng = np.random.default_rng(0)
        ratios = _resampled(b.times, rng) / np.maximum(_resampled(a.times, rng), 1.0)
        low, high = (float(value) for value in np.percentile(ratios, _INTERVAL))
        if low > 1 + MATTERS:
            verdict = SLOWER
        elif high < 1 / (1 + MATTERS):
            verdict = FASTER
        elif low > 1 / (1 + 2 * MATTERS) and high < 1 + 2 * MATTERS:
            verdict = SAME
    weight = max(of_a.total / max(whole[0], 1.0), of_b.total / max(whole[1], 1.0))
    return Change(key, of_a, of_b, ratio, low, high, verdict, weight)


def compare(a: Model, b: Model) -> Comparison:
    """Capture b against capture a."""
    first, second = _samples(a), _samples(b)
    whole = tuple(
        sum(float(s.times.mean()) * s.calls for s in side.values()) for side in (first, second)
    )
    both = [key for key in first if key in second]
    changes = [_change(key, first[key], second[key], (whole[0], whole[1])) for key in both]
    rank = {SLOWER: 0, FASTER: 1, UNRESOLVED: 2, SAME: 3}
    changes.sort(key=lambda c: (rank[c.verdict], -c.weight * abs(np.log(max(c.ratio, 1e-9)))))
    return Comparison(
        changes=tuple(changes),
        appeared=tuple((key, second[key].calls) for key in second if key not in first),
        vanished=tuple((key, first[key].calls) for key in first if key not in second),
        verdict=_verdict(changes),
        ratio=_ratio(changes),
        incomplete=tuple("; ".join(m.completeness.missing()) for m in (a, b)),  # type: ignore[arg-type]
        simulated=(a.completeness.is_simulation, b.completeness.is_simulation),
        timed=(sum(s.calls for s in first.values()), sum(s.calls for s in second.values())),
    )


def _ratio(changes: list[Change]) -> float | None:
    before = sum(change.a.total for change in changes)
    after = sum(change.a.total * change.ratio for change in changes)
    return after / before if before else None


def _verdict(changes: list[Change]) -> str:
    """Slower where anything that matters is, else faster, else the same or not resolved."""
    weighty = [change for change in changes if change.weight >= _WEIGHT]
    for verdict in (SLOWER, FASTER):
        if any(change.verdict == verdict for change in weighty):
            return verdict
    if weighty and all(change.verdict == SAME for change in weighty):
        return SAME
    return UNRESOLVED
