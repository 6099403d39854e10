"""Ranks that others wait for where operations are sampled: costs are estimates of all of them."""

from ncclscope.analysis.waiting.sampled_delays import SampledDelays
from ncclscope.diagnose.finding import INFO, Evidence, Finding
from ncclscope.diagnose.late_ranks import ADVICE, CAUSES, late_by_sample, severity
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import duration, percent

# Of a healthy job one GPU is the slowest, by a percent: others wait for it in each of its steps'
# collectives, up to 7 % of the run in the laboratory, and the run loses less.
_WARNED_OF = 0.12


def find(context: RuleContext) -> list[Finding]:
    """Late ranks whose cost predictions do not show."""
    return [_finding(context, delays) for delays in late_by_sample(context)]


def _finding(context: RuleContext, delays: SampledDelays) -> Finding:
    kind, ranks = delays.kind, delays.ranks
    hosts = {context.run.host_of[rank] for rank in ranks if rank in context.run.host_of}
    if len(ranks) == 1:
        who, it = f"rank {ranks[0]}{context.where(ranks[0])} is", "it"
    else:
        who, it = f"all {len(ranks)} ranks of {', '.join(sorted(hosts))} are", "them"
    return Finding(
        "straggler",
        severity(context, delays.share) if delays.share >= _WARNED_OF else INFO,
        f"{who} late {delays.times:,} times, typically by {duration(delays.typical_ns)}; only "
        f"{percent(delays.timed_share)} of the operations have GPU times: by these, others wait "
        f"for {it} about {percent(delays.share)} of the run, which is the most that it costs",
        f"{CAUSES[kind]}: {ADVICE[kind]}; record with --gpu-timing kernel to see every delay",
        kind=kind if len(ranks) == 1 else f"host {kind}",
        ranks=ranks,
        hosts=tuple(sorted(hosts)),
        communicators=(),
        evidence=(
            Evidence(
                f"another rank waited {duration(delays.seen_ns)} for {it} in these, on average",
                {"times": delays.times, "typical_us": round(delays.typical_ns / 1e3, 3)},
                f"ncclscope report {context.path} --by rank",
            ),
        ),
        confidence=min(0.4 + 0.5 * delays.times / (delays.times + 10), 0.9),
        lost_share=delays.share,
    )
