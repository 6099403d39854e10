"""A comparison of two captures as text and as JSON; docs/verbs/compare.md describes both."""

import math
from collections.abc import Iterator
from typing import Any

from ncclscope.analysis.job_samples import Key
from ncclscope.diagnose.comparison import Change, Comparison, Spread
from ncclscope.diagnose.comparison_verdict import (
    LEFT_OPEN,
    MATTERS,
    MEAN_ROUND,
    NOT_JUDGED,
    ROUND,
    RUN,
    SAME,
    WAITING,
    WIRE,
    Measure,
)
from ncclscope.humanize import binary_size, duration, percent, plural, printable, wrapped
from ncclscope.json_answers import VERSION
from ncclscope.report.tables import Column, Table, plain_lines

_MOST_ROWS = 40
_MOSTLY = 0.4  # of a change
_COLUMNS = (
    Column("communicator", right=False),
    Column("function", right=False),
    Column("bytes"),
    Column("datatype", right=False, drop=3),
    Column("calls A", drop=2),
    Column("calls B", drop=2),
    Column("median A"),
    Column("median B"),
    Column("B / A"),
    Column("99 % interval", drop=1),
    Column("time", drop=1),
    Column("", right=False),
)


def _row(change: Change) -> tuple[str, ...]:
    communicator, function, size, datatype = change.key
    resolved = math.isfinite(change.high)
    return (
        communicator,
        function,
        binary_size(size),
        datatype,
        f"{change.a.calls:,}",
        f"{change.b.calls:,}",
        duration(change.a.median),
        duration(change.b.median),
        f"{change.ratio:.3f}",
        f"{change.low:.3f} … {change.high:.3f}" if resolved else "too few calls",
        percent(change.weight),
        change.verdict if change.verdict != SAME else "",
    )


def _key_in_words(key: Key) -> str:
    return f"{key[0]} {key[1]} {binary_size(key[2])} {key[3]}"


_NAMES = {
    ROUND: "a round",
    MEAN_ROUND: "a round, mean",
    RUN: "the run, by round",
    WAITING: "waiting",
    WIRE: "on the wire",
}
_MEASURE_COLUMNS = (
    Column("the job", right=False),
    Column("A"),
    Column("B"),
    Column("B / A"),
    Column("99 % interval"),
    Column("", right=False),
)


def _several(values: tuple[float, ...]) -> str:
    """The mean of runs, and their range."""
    text = duration(sum(values) / len(values))
    if len(values) == 1:
        return text
    return f"{text} ({duration(min(values))} … {duration(max(values))})"


def _measure_row(measure: Measure) -> tuple[str, ...]:
    if measure.name == WAITING:  # a share of the round: there may have been none before
        change = f"{measure.change * 100:+.0f} %"
        interval = f"{measure.low * 100:+.0f} … {measure.high * 100:+.0f} % of a round"
    else:
        change = f"{measure.change:.3f}"
        interval = f"{measure.low:.3f} … {measure.high:.3f}"
    name = _NAMES[measure.name]
    return name, _several(measure.a), _several(measure.b), change, interval, measure.verdict


def _verdict(comparison: Comparison) -> str:
    if comparison.reason:
        return f"{comparison.verdict}: {comparison.reason}".replace("unresolved:", "not resolved:")
    measures = {measure.name: measure for measure in comparison.measures}
    if comparison.verdict == SAME:
        so_far = "" if comparison.knows_spread else ", as far as one run of each can tell"
        return f"B is as fast as A{so_far}: {_in_words(measures[RUN])}"
    decides = next(m for m in measures.values() if m.verdict == comparison.verdict)
    return f"B is {comparison.verdict} than A: {_in_words(decides)}{_mostly(comparison, decides)}"


def _mostly(comparison: Comparison, decides: Measure) -> str:
    """What most of the change is, where it is waiting that began in one place."""
    if decides.name not in (ROUND, MEAN_ROUND) or not comparison.origins:
        return ""
    change = sum(decides.b) / len(decides.b) - sum(decides.a) / len(decides.a)
    origin = comparison.origins[0]
    if origin.difference_ns / change < _MOSTLY:
        return ""
    more = "more" if change > 0 else "less"
    amount = duration(abs(origin.difference_ns))
    return f"; a rank waits {amount} {more} of it because of {origin.name}"


def _in_words(measure: Measure) -> str:
    a, b = _several(measure.a), _several(measure.b)
    if measure.name == WAITING:
        return f"a rank waits {b} a round instead of {a}"
    subject = {
        ROUND: "a round takes",
        MEAN_ROUND: "rounds take in the mean, though not typically,",
        RUN: "after its start-up, the run takes by round",
        WIRE: "all calls together take on the wire",
    }[measure.name]
    return f"{subject} {b} instead of {a}, {measure.change:.2f} times as long"


def _runs_in_words(comparison: Comparison) -> str:
    """What a comparison of this many runs can show."""
    bars = (
        f"B is called as fast where the run differs by at most {percent(MATTERS)}, and less than "
        f"{percent(LEFT_OPEN)} is left open."
    )
    if comparison.knows_spread:
        runs = f"{comparison.runs[0]} and {comparison.runs[1]} runs"
        return f"Intervals are those between runs, from how much {runs} of one job differ. {bars}"
    return (
        "With one run of each, how much equal runs differ is not known. Equal jobs were seen to "
        "differ by 10 % in their rounds and by half in single kinds of calls, so that much is not "
        "called a difference; the interval of the run is what its parts show, without that. "
        f"{bars} Several runs tell more: compare a1 a2 a3 -- b1 b2."
    )


def _spans_in_words(comparison: Comparison) -> str:
    a, b = (_several(tuple(map(float, spans))) for spans in comparison.span_ns)
    return f"The runs took {a} and {b}, with their start-up, which is not judged."


def lines(comparison: Comparison, a: list[str], b: list[str], width: int) -> Iterator[str]:
    """The verdict, the job, what changed, what appeared and what vanished."""
    for name, paths, simulated in zip("AB", (a, b), comparison.simulated, strict=True):
        yield printable(f"{name}: {', '.join(paths)}") + (" (a simulation)" if simulated else "")
    for name, missing in zip("AB", comparison.incomplete, strict=True):
        if missing:
            yield from wrapped(f"! {name} is incomplete: {missing}", width)
    yield from wrapped(_verdict(comparison), width, "  ")
    yield from _measure_lines(comparison, width)
    yield from _origin_lines(comparison, width)
    yield from _change_lines(comparison.changes, width)
    for what, keys in (("only in A", comparison.vanished), ("only in B", comparison.appeared)):
        if keys:
            yield ""
            yield f"{what}:"
            for key, calls in keys[:_MOST_ROWS]:
                yield printable(f"  {_key_in_words(key)}, {plural(calls, 'call')}")
            if len(keys) > _MOST_ROWS:
                yield f"  and {len(keys) - _MOST_ROWS:,} more: --json has all of them"
    if comparison.changes:
        left_out = plain_lines(_change_table(comparison.changes), width)[2]
        share = "" if "time" in left_out else "time: share of all calls' time, the larger of both. "
        yield ""
        text = f"A call's time is the shortest over its ranks, so waiting is not in it. {share}"
        if any(change.verdict == NOT_JUDGED for change in comparison.changes):
            text += f"{NOT_JUDGED}: times that are lower bounds, or not from the GPU."
        yield from wrapped(text.rstrip(), width)


def _measure_lines(comparison: Comparison, width: int) -> Iterator[str]:
    if not comparison.measures:
        return
    rows = tuple(_measure_row(measure) for measure in comparison.measures)
    heading, texts, _ = plain_lines(Table("", _MEASURE_COLUMNS, rows), width)
    yield ""
    yield heading
    yield from texts
    if comparison.rhythm:
        kind = _key_in_words(comparison.rhythm)
        text = f"A round: from one call of {kind} to the next. waiting: of one rank in it."
        yield from wrapped(text, width)
    yield from wrapped(_spans_in_words(comparison), width)
    yield from wrapped(_runs_in_words(comparison), width)


def _origin_lines(comparison: Comparison, width: int) -> Iterator[str]:
    if not comparison.origins:
        return
    rows = tuple((o.name, _several(o.a), _several(o.b)) for o in comparison.origins)
    columns = (Column("waiting by where it began", right=False), Column("A"), Column("B"))
    heading, texts, _ = plain_lines(Table("", columns, rows), width)
    yield ""
    yield heading
    yield from texts
    yield "of one rank in a round, in the mean, after the start-up"


def _change_table(changes: tuple[Change, ...]) -> Table:
    return Table("", _COLUMNS, tuple(_row(change) for change in changes[:_MOST_ROWS]))


def _change_lines(changes: tuple[Change, ...], width: int) -> Iterator[str]:
    if not changes:
        return
    heading, rows, _ = plain_lines(_change_table(changes), width)
    yield ""
    yield heading
    yield from rows
    if len(changes) > _MOST_ROWS:
        yield f"and {len(changes) - _MOST_ROWS:,} more: --json has all of them"


def _key(key: Key) -> dict[str, Any]:
    return dict(zip(("communicator", "function", "size_bytes", "datatype"), key, strict=True))


def _spread(spread: Spread) -> dict[str, Any]:
    return {
        "calls": spread.calls,
        "total_ns": round(spread.total),
        "duration_ns": {
            "min": round(spread.shortest),
            "median": round(spread.median),
            "p99": round(spread.p99),
            "max": round(spread.longest),
        },
        "wait_ns": None if spread.wait is None else round(spread.wait),
    }


def _measure(measure: Measure) -> dict[str, Any]:
    share = measure.name == WAITING
    return {
        "name": measure.name,
        "verdict": measure.verdict,
        "a_ns": [round(value) for value in measure.a],
        "b_ns": [round(value) for value in measure.b],
        "difference_of_round" if share else "ratio": round(measure.change, 6),
        "interval": [round(measure.low, 6), round(measure.high, 6)],
    }


def as_json(comparison: Comparison, a: list[str], b: list[str]) -> dict[str, Any]:
    """The whole comparison."""
    spans = [list(map(round, side)) for side in comparison.span_ns]
    return {
        "version": VERSION,
        "a": a[0],
        "b": b[0],
        "runs": {"a": a, "b": b},
        "simulation": {"a": comparison.simulated[0], "b": comparison.simulated[1]},
        "verdict": comparison.verdict,
        "reason": comparison.reason or None,
        "bounds_loss": comparison.bounds_loss,
        "between_runs": comparison.knows_spread,
        "run_ns": {"a": spans[0], "b": spans[1]},
        "round": _key(comparison.rhythm) if comparison.rhythm else None,
        "measures": [_measure(measure) for measure in comparison.measures],
        "origins": [
            {
                "name": origin.name,
                "a_ns": [round(value) for value in origin.a],
                "b_ns": [round(value) for value in origin.b],
            }
            for origin in comparison.origins
        ],
        "ratio": comparison.ratio,
        "incomplete": {
            "a": comparison.incomplete[0] or None,
            "b": comparison.incomplete[1] or None,
        },
        "changes": [
            {
                **_key(change.key),
                "verdict": change.verdict,
                "ratio": round(change.ratio, 6),
                "interval": [round(change.low, 6), round(change.high, 6)]
                if math.isfinite(change.high)
                else None,
                "weight": round(change.weight, 6),
                "a": _spread(change.a),
                "b": _spread(change.b),
            }
            for change in comparison.changes
        ],
        "appeared": [{**_key(key), "calls": calls} for key, calls in comparison.appeared],
        "vanished": [{**_key(key), "calls": calls} for key, calls in comparison.vanished],
    }
