"""Runs that are mostly transfer, where nothing tells how fast the links could be.

A link that is slow from the first step on, and that no other communicator's links can be compared
with, leaves no trace in a run but its bandwidth.
"""

from shlex import quote

import numpy as np

from ncclscope.analysis.baseline import Baseline, function_key
from ncclscope.analysis.waiting.kernels import without_peers
from ncclscope.analysis.waiting.path_parts import PathPart, path_parts
from ncclscope.analysis.wire_bandwidth import WireBandwidth, wire_bandwidths
from ncclscope.diagnose.finding import INFO, Evidence, Finding
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import binary_size, percent

_MOST = 0.5  # of the critical path
_FASTER = 1.5  # times the bus bandwidth, for a communicator of another name to be mentioned


def find(context: RuleContext, baseline: Baseline | None = None) -> list[Finding]:
    """A remark where most of the critical path is collectives on communicators without peers.
    What a baseline has is judged.
    """
    waiting = context.waiting
    if waiting is None or context.is_sparse:
        return []
    path = waiting.path
    length_ns = int(path.length_ns.sum())
    alone = without_peers(waiting.kernels)
    parts = [
        part
        for part in path_parts(waiting, path)
        if part.communicator is not None and alone[part.communicator]
    ]
    share = sum(part.length_ns for part in parts) / max(length_ns, 1)
    if share < _MOST:
        return []
    bandwidths = wire_bandwidths(context.run)
    reached = _reached(bandwidths, parts[0])
    if reached is None or _is_in(baseline, reached):
        return []
    if _crosses_nodes(context, reached) and _is_full(context):
        return []  # proxy steps show each link
    return [_finding(context, share, (parts[0], reached), _faster(context, bandwidths, reached))]


def _reached(bandwidths: tuple[WireBandwidth, ...], part: PathPart) -> WireBandwidth | None:
    """The size that takes most of the time of a function on a communicator."""
    own = [
        one
        for one in bandwidths
        if one.communicator == part.communicator and one.function == part.function
    ]
    return max(own, key=lambda one: one.wire_ns, default=None)


def _is_in(baseline: Baseline | None, reached: WireBandwidth) -> bool:
    case = (function_key(reached.function), reached.size_bytes)
    return baseline is not None and case in baseline.by_case()


def _crosses_nodes(context: RuleContext, reached: WireBandwidth) -> bool:
    return int(context.model.tables["communicators"]["nodes"][reached.communicator]) > 1


def _is_full(context: RuleContext) -> bool:
    return any("full" in (row.mode, row.fullest_mode) for row in context.model.processes)


def _faster(
    context: RuleContext, bandwidths: tuple[WireBandwidth, ...], reached: WireBandwidth
) -> WireBandwidth | None:
    """The fastest other communicator of as many ranks on as many nodes that is far faster with the
    same function, and no larger messages.
    """
    nodes = np.asarray(context.model.tables["communicators"]["nodes"])
    alike = [
        one
        for one in bandwidths
        if (one.function, one.ranks) == (reached.function, reached.ranks)
        and one.communicator != reached.communicator
        and nodes[one.communicator] == nodes[reached.communicator]
        and one.size_bytes <= reached.size_bytes
        and one.busbw_gbs > _FASTER * reached.busbw_gbs
    ]
    return max(alike, key=lambda one: one.busbw_gbs, default=None)


def _finding(
    context: RuleContext,
    share: float,
    most: tuple[PathPart, WireBandwidth],
    faster: WireBandwidth | None,
) -> Finding:
    part, reached = most
    names = context.model.communicator_names
    name = names[reached.communicator]
    advice = (
        "compare with what `ncclscope bench` reaches (--baseline), or with earlier jobs (--history)"
    )
    if _crosses_nodes(context, reached):
        advice = f"record in mode full: proxy steps name a slow link; or {advice}"
    evidence = [
        Evidence(
            f"{part.edges:,} times on the critical path",
            {"busbw_gbs": round(reached.busbw_gbs, 4), "size_bytes": reached.size_bytes},
            f"ncclscope report {context.path} --comm {quote(name)}",
        )
    ]
    if faster is not None:
        other = names[faster.communicator]
        evidence.append(
            Evidence(
                f"{other}, of as many ranks on as many nodes, reaches {faster.busbw_gbs:.3g} GB/s "
                f"with {binary_size(faster.size_bytes)}",
                {"communicator": other, "busbw_gbs": round(faster.busbw_gbs, 4)},
                f"ncclscope report {context.path} --comm {quote(other)}",
            )
        )
    return Finding(
        "below_expected",
        INFO,
        f"{percent(share)} of the critical path is transfer, most of it {part.function} on {name}: "
        f"{reached.busbw_gbs:.3g} GB/s of bus bandwidth with {binary_size(reached.size_bytes)}; "
        "nothing on record tells whether its links could be faster",
        advice,
        kind="not judged",
        communicators=(name,),
        evidence=tuple(evidence),
        confidence=0.9,
    )
