"""Ranks that others wait for where operations are sampled: costs are estimates of all of them."""

from ncclscope.analysis.waiting.sampled_delays import SampledDelays
from ncclscope.diagnose.finding import Evidence, Finding
from ncclscope.diagnose.late_ranks import ADVICE, CAUSES, KINDS, late_by_sample, severity
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import duration, percent


def find(context: RuleContext) -> list[Finding]:
    """Late ranks whose cost predictions do not show."""
    return [_finding(context, delays) for delays in late_by_sample(context)]


def _finding(context: RuleContext, delays: SampledDelays) -> Finding:
    kind = KINDS.get(delays.kind, "compute")
    host = context.run.host_of.get(delays.rank, "")
    timed = percent(delays.timed / max(delays.operations, 1))
    return Finding(
        "straggler",
        severity(context, delays.share),
        f"rank {delays.rank}{context.where(delays.rank)} is late {delays.times:,} times, typically "
        f"by {duration(delays.typical_ns)}; only {timed} of its operations have GPU times: by "
        f"these, waiting for it takes about {percent(delays.share)} of the run",
        f"{CAUSES[kind]}: {ADVICE[kind]}; record with --gpu-timing kernel to see every delay",
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
