"""Bandwidth against a baseline that was measured before on the same machines."""

from shlex import quote

from ncclscope.analysis.baseline import Baseline, Expected, function_key
from ncclscope.analysis.wire_bandwidth import WireBandwidth, wire_bandwidths
from ncclscope.diagnose.finding import CRITICAL, WARNING, Evidence, Finding
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import binary_size, percent

_SHORT = 0.8  # of the baseline
_GRAVE = 0.5
_MOST = 5  # findings


def find(context: RuleContext, baseline: Baseline) -> list[Finding]:
    """Functions and sizes that reach less on the wire than they did in the baseline."""
    expected = baseline.by_case()
    findings = []
    for reached in wire_bandwidths(context.run):
        case = expected.get((function_key(reached.function), reached.size_bytes))
        if case is not None and reached.busbw_gbs < _SHORT * case.busbw_gbs:
            findings.append(_finding(context, reached, case))
    return sorted(findings, key=lambda finding: -finding.lost_share)[:_MOST]


def _finding(context: RuleContext, reached: WireBandwidth, case: Expected) -> Finding:
    name = context.model.communicator_names[reached.communicator]
    share = reached.busbw_gbs / case.busbw_gbs
    return Finding(
        "below_expected",
        CRITICAL if share < _GRAVE else WARNING,
        f"{reached.function} of {binary_size(reached.size_bytes)} on {name} reaches "
        f"{reached.busbw_gbs:.3g} GB/s of bus bandwidth on the wire, {percent(share)} of the "
        f"{case.busbw_gbs:.3g} GB/s in the baseline",
        "compare topology, NCCL release and settings with those of the baseline",
        kind="baseline",
        communicators=(name,),
        confidence=0.9,
        lost_share=min(reached.wire_ns * (1 - share) / context.run.span_ns, 1.0),
        evidence=(
            Evidence(
                "bus bandwidth over the wire",
                {"busbw_gbs": round(reached.busbw_gbs, 4), "baseline_gbs": case.busbw_gbs},
                f"ncclscope report {context.path} --comm {quote(name)}",
            ),
        ),
    )
