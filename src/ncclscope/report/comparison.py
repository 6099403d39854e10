"""A comparison of two captures as text and as JSON; docs/verbs/compare.md describes both."""

import math
from collections.abc import Iterator
from typing import Any

from ncclscope.diagnose.comparison import (
    LEAST,
    SAME,
    UNRESOLVED,
    Change,
    Comparison,
    Key,
    Spread,
)
from ncclscope.humanize import binary_size, duration, percent, plural, printable, wrapped
from ncclscope.report.tables import Column, Table, plain_lines

VERSION = 1  # fields are added without a change of it
_MOST_ROWS = 40
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


def _verdict(comparison: Comparison) -> str:
    if comparison.verdict == UNRESOLVED:
        return f"not resolved: {_why_unresolved(comparison)}"
    ratio_text = f"{comparison.ratio:.2f} times the time on the wire" if comparison.ratio else ""
    if comparison.verdict == SAME:
        return f"B is as fast as A{': ' if ratio_text else ''}{ratio_text}"
    changed = sum(change.verdict == comparison.verdict for change in comparison.changes)
    kinds = f"{plural(len(comparison.changes), 'kind')} of calls"
    share = f"{changed:,} of {kinds}" if changed < len(comparison.changes) else f"all {kinds}"
    share = kinds if len(comparison.changes) == 1 else share
    return f"B is {comparison.verdict} than A in {share}" + (
        f"; together {ratio_text}" if ratio_text else ""
    )


def _why_unresolved(comparison: Comparison) -> str:
    untimed = [name for name, calls in zip("AB", comparison.timed, strict=True) if not calls]
    if untimed:
        has = "has" if len(untimed) == 1 else "have"
        return f"{' and '.join(untimed)} {has} no times of single calls: record in mode trace"
    if not comparison.changes:
        return "A and B have no call in common (communicator, function, bytes, datatype)"
    if not any(math.isfinite(change.high) for change in comparison.changes):
        return f"too few calls: it takes {LEAST} of a kind on each side"
    return "what differs may be chance, what surely differs does not matter"


def lines(comparison: Comparison, a: str, b: str, width: int) -> Iterator[str]:
    """The verdict, what changed, what appeared and what vanished."""
    for name, path, simulated in zip("AB", (a, b), comparison.simulated, strict=True):
        yield printable(f"{name}: {path}") + (" (a simulation)" if simulated else "")
    for name, missing in zip("AB", comparison.incomplete, strict=True):
        if missing:
            yield from wrapped(f"! {name} is incomplete: {printable(missing)}", width)
    yield from wrapped(_verdict(comparison), width, "  ")
    changes = comparison.changes
    if changes:
        table = Table("", _COLUMNS, tuple(_row(change) for change in changes[:_MOST_ROWS]))
        heading, rows, _ = plain_lines(table, width)
        yield ""
        yield heading
        yield from rows
        if len(changes) > _MOST_ROWS:
            yield f"and {len(changes) - _MOST_ROWS:,} more: --json has all of them"
    for what, keys in (("only in A", comparison.vanished), ("only in B", comparison.appeared)):
        if keys:
            yield ""
            yield f"{what}:"
            for key, calls in keys[:_MOST_ROWS]:
                yield printable(f"  {_key_in_words(key)}, {plural(calls, 'call')}")
            if len(keys) > _MOST_ROWS:
                yield f"  and {len(keys) - _MOST_ROWS:,} more: --json has all of them"
    yield ""
    yield from wrapped(
        "A call's time is the shortest over its ranks, so waiting is not in it. time: share of all "
        "calls' time, the larger of both.",
        width,
    )


def _key(key: Key) -> dict[str, Any]:
    return dict(zip(("communicator", "function", "bytes", "datatype"), key, strict=True))


def _spread(spread: Spread) -> dict[str, Any]:
    return {
        "calls": spread.calls,
        "total_us": round(spread.total / 1e3, 3),
        "duration_us": {
            "min": round(spread.shortest / 1e3, 3),
            "median": round(spread.median / 1e3, 3),
            "p99": round(spread.p99 / 1e3, 3),
            "max": round(spread.longest / 1e3, 3),
        },
        "wait_us": None if spread.wait is None else round(spread.wait / 1e3, 3),
    }


def as_json(comparison: Comparison, a: str, b: str) -> dict[str, Any]:
    """The whole comparison."""
    return {
        "version": VERSION,
        "a": a,
        "b": b,
        "simulation": {"a": comparison.simulated[0], "b": comparison.simulated[1]},
        "verdict": comparison.verdict,
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
