"""What the other devices of a run have, and one remark of what many of them share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ncclscope.diagnose.finding import SEVERITIES, Evidence, Finding
from ncclscope.diagnose.hardware.samples import Place
from ncclscope.humanize import percent, plural

MOST = 6  # remarks of a kind
_MANY = 3  # of which one remark is made, where they are most of their peers
_SHOWN = 3


def usual_of_others(values: Mapping[Place, float]) -> dict[Place, float]:
    """By device the median of all others; of thousands, so they are put in order but once."""
    count = len(values) - 1
    if count < 1:
        return {}
    order = np.argsort(np.array(list(values.values()), np.float64), kind="stable")
    ordered = np.array(list(values.values()), np.float64)[order]
    at = np.empty(len(order), np.int64)
    at[order] = np.arange(len(order))
    low, high = (count - 1) // 2, count // 2  # of what is left without oneself
    middle = (ordered[low + (at <= low)] + ordered[high + (at <= high)]) / 2
    return dict(zip(values, middle.tolist(), strict=True))


def by_kind(values: Mapping[Place, float]) -> list[dict[Place, float]]:
    """Interfaces apart from ports."""
    found: dict[str, dict[Place, float]] = {}
    for place, value in values.items():
        found.setdefault(place[1].kind, {})[place] = value
    return list(found.values())


def spread(shares: Iterable[float]) -> str:
    """60 % to 95 %"""
    ordered = sorted(shares)
    low, high = percent(ordered[0]), percent(ordered[-1])
    return high if low == high else f"{low} to {high}"


def is_shared(count: int, peers: int) -> bool:
    """Whether so many are most of their peers, and worth one remark instead of many."""
    return count >= _MANY and 2 * count > peers


def together(findings: Sequence[Finding], peers: int, sentence: str) -> Finding:
    """One remark of many like ones, the worst of them first."""
    shown = [replace(one.evidence[0], text=f"of them: {one.sentence}") for one in findings[:_SHOWN]]
    counted = Evidence(
        f"{len(findings):,} of {peers:,}",
        {"devices": len(findings), "peers": peers},
        shown[0].command,
    )
    return replace(_joined(findings), sentence=sentence, evidence=(counted, *shown))


def few_of_each_kind(findings: Sequence[Finding]) -> list[Finding]:
    """The worst of each kind, and how many more there are."""
    kinds: dict[str, list[Finding]] = {}
    for one in findings:
        kinds.setdefault(one.kind, []).append(one)
    found = []
    for kind, all_of_it in kinds.items():
        ordered = sorted(
            all_of_it, key=lambda one: (-SEVERITIES.index(one.severity), -one.confidence)
        )
        most = MOST if len(ordered) > MOST + 1 else len(ordered)
        found += ordered[:most]
        if rest := ordered[most:]:
            found.append(_more(kind, rest))
    return found


def _more(kind: str, rest: Sequence[Finding]) -> Finding:
    joined = _joined(rest)
    names = ", ".join(joined.hosts[:_SHOWN])
    others = len(joined.hosts) - _SHOWN
    where = f"{names} and {plural(others, 'more host')}" if others > 0 else names
    return replace(
        joined,
        sentence=f"{kind}: {len(rest):,} more like these, on {where}",
        evidence=(replace(rest[0].evidence[0], text=f"of them: {rest[0].sentence}"),),
        confidence=min(one.confidence for one in rest) - 0.01,  # they stand after those
    )


def _joined(findings: Sequence[Finding]) -> Finding:
    """The first, with the ranks and hosts of all and the worst severity."""
    return replace(
        findings[0],
        severity=max((one.severity for one in findings), key=SEVERITIES.index),
        ranks=tuple(sorted({rank for one in findings for rank in one.ranks})),
        hosts=tuple(dict.fromkeys(host for one in findings for host in one.hosts)),
    )
