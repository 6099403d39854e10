"""How a device compares with its peers in the run, and one finding for what many of them share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ncclscope.diagnose import SEVERITIES
from ncclscope.diagnose.finding import Evidence, Finding
from ncclscope.diagnose.hardware.samples import Place
from ncclscope.humanize import percent, plural

MOST = 6  # findings of a kind
OFTEN_FULL, SELDOM_FULL = 0.2, 0.05  # of the time: a link, and its peers
MANY_ERRORS, TIMES_USUAL = 10, 10  # at least, and times those of its peers
_MANY = 3  # that are combined into one, where they are most of their peers
_SHOWN = 3


def medians_of_others(values: Mapping[Place, float]) -> dict[Place, float]:
    """By device the median of all others; sorted once, because devices can be thousands."""
    count = len(values) - 1
    if count < 1:
        return {}
    order = np.argsort(np.array(list(values.values()), np.float64), kind="stable")
    ordered = np.array(list(values.values()), np.float64)[order]
    at = np.empty(len(order), np.int64)
    at[order] = np.arange(len(order))
    low, high = (count - 1) // 2, count // 2  # places in the middle without the device itself
    middle = (ordered[low + (at <= low)] + ordered[high + (at <= high)]) / 2
    return dict(zip(values, middle.tolist(), strict=True))


def by_kind(values: Mapping[Place, float]) -> list[dict[Place, float]]:
    """Values of interfaces apart from those of ports."""
    kinds: dict[str, dict[Place, float]] = {}
    for place, value in values.items():
        kinds.setdefault(place[1].kind, {})[place] = value
    return list(kinds.values())


def percent_range(shares: Iterable[float]) -> str:
    """60 % to 95 %"""
    ordered = sorted(shares)
    low, high = percent(ordered[0]), percent(ordered[-1])
    return high if low == high else f"{low} to {high}"


def is_shared(count: int, peers: int) -> bool:
    """Whether that many are most of their peers, and enough for one finding instead of many."""
    return count >= _MANY and 2 * count > peers


def combine(findings: Sequence[Finding], peers: int, sentence: str) -> Finding:
    """One finding for many alike; the worst of them come first."""
    examples = [
        replace(finding.evidence[0], text=f"of them: {finding.sentence}")
        for finding in findings[:_SHOWN]
    ]
    counted = Evidence(
        f"{len(findings):,} of {peers:,}",
        {"devices": len(findings), "peers": peers},
        examples[0].command,
    )
    return replace(_merge(findings), sentence=sentence, evidence=(counted, *examples))


def few_of_each_kind(findings: Sequence[Finding]) -> list[Finding]:
    """The worst of each kind, and how many more there are."""
    kinds: dict[str, list[Finding]] = {}
    for finding in findings:
        kinds.setdefault(finding.kind, []).append(finding)
    few = []
    for kind, same_kind in kinds.items():
        ordered = sorted(same_kind, key=lambda f: (-SEVERITIES.index(f.severity), -f.confidence))
        most = MOST if len(ordered) > MOST + 1 else len(ordered)
        few += ordered[:most]
        if rest := ordered[most:]:
            few.append(_more(kind, rest))
    return few


def _more(kind: str, rest: Sequence[Finding]) -> Finding:
    merged = _merge(rest)
    names = ", ".join(merged.hosts[:_SHOWN])
    others = len(merged.hosts) - _SHOWN
    where = f"{names} and {plural(others, 'more host')}" if others > 0 else names
    return replace(
        merged,
        sentence=f"{kind}: {len(rest):,} more like these, on {where}",
        evidence=(replace(rest[0].evidence[0], text=f"of them: {rest[0].sentence}"),),
        confidence=min(f.confidence for f in rest) - 0.01,  # it comes after those
    )


def _merge(findings: Sequence[Finding]) -> Finding:
    """The first, with the ranks and hosts of all and the worst severity."""
    return replace(
        findings[0],
        severity=max((finding.severity for finding in findings), key=SEVERITIES.index),
        ranks=tuple(sorted({rank for finding in findings for rank in finding.ranks})),
        hosts=tuple(dict.fromkeys(host for finding in findings for host in finding.hosts)),
    )
