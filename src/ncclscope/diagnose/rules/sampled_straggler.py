"""Ranks that others wait for where operations are sampled: costs are estimates of all of them."""

from ncclscope.analysis.waiting.sampled_delays import SampledDelays
from ncclscope.diagnose.finding import CRITICAL, WARNING, Evidence, Finding
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import duration, percent

_PROBLEM_SHARE, _GRAVE_SHARE = 0.04, 0.25  # of the run, as for stragglers whose every delay is seen
# Kinds of edges as users know them, and what to look at.
_KINDS = {"launch": "launch", "gpu": "gpu"}
_ADVICE = {
    "compute": "it comes late to the call: look at this rank's share of work, its data loader, its "
    "GPU clocks and thermals",
    "launch": "its host is slow to launch the kernel: look for a busy or throttled CPU, wrong CPU "
    "affinity, other processes",
    "gpu": "its GPU takes longer from one operation to the next: compare its share of work, GPU "
    "clocks, thermals and kernel times with another rank's",
}


def find(context: RuleContext) -> list[Finding]:
    """Late ranks whose cost predictions do not show: those know of the timed operations alone."""
    return [
        _finding(context, delays)
        for delays in context.sampled_delays
        if delays.share >= _PROBLEM_SHARE
    ]


def _finding(context: RuleContext, delays: SampledDelays) -> Finding:
    kind = _KINDS.get(delays.kind, "compute")
    host = context.run.host_of.get(delays.rank, "")
    timed = percent(delays.timed / max(delays.operations, 1))
    return Finding(
        "straggler",
        CRITICAL if delays.share >= _GRAVE_SHARE else WARNING,
        f"rank {delays.rank}{context.where(delays.rank)} is late {delays.times:,} times, typically "
        f"by {duration(delays.typical_ns)}; only {timed} of its operations have GPU times: by "
        f"these, waiting for it takes about {percent(delays.share)} of the run",
        f"{_ADVICE[kind]}; record with --gpu-timing kernel for a while to see every delay",
        kind=kind,
        ranks=(delays.rank,),
        hosts=(host,) if host else (),
        communicators=(),
        evidence=(
            Evidence(
                f"another rank waited {duration(delays.seen_ns)} for it in these operations",
                {"times": delays.times, "typical_us": round(delays.typical_ns / 1e3, 3)},
                f"ncclscope report {context.path} --by rank",
            ),
        ),
        confidence=min(0.4 + 0.5 * delays.times / (delays.times + 10), 0.9),
        lost_share=delays.share,
    )
