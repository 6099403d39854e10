"""Hints: small messages, algorithms, launches and missing overlap that cost time."""

from ncclscope.analysis.launch_efficiency import (
    algorithm_choices,
    back_to_back,
    launches,
    small_messages,
)
from ncclscope.diagnose.finding import INFO, Evidence, Finding
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import binary_size, percent

_SMALL_BYTES = 64 << 10  # below, latency decides
_MANY_SMALL = 0.5  # of calls
_TIME_SHARE = 0.05  # of the run: less is not worth a hint
_SLOWER = 2.0  # times as long as with another algorithm
_LEAST_SLOW = 10  # operations with the slow algorithm
_MOST_CHOICES = 3  # findings
_LAUNCH_BOUND = 0.5  # of operations are shorter than their launch
_LEAST_LAUNCHES = 100
_LEAST_CHANGES = 50  # from one communicator to another
_CLOSE = 0.5  # of these follow at once


def find(context: RuleContext) -> list[Finding]:
    """All hints."""
    return [
        *find_small_messages(context),
        *find_slow_algorithms(context),
        *find_long_launches(context),
        *find_missing_overlap(context),
    ]


def find_small_messages(context: RuleContext) -> list[Finding]:
    """Many calls that move next to nothing."""
    small = small_messages(context.run, _SMALL_BYTES)
    if small is None or small.calls_share < _MANY_SMALL or small.time_share < _TIME_SHARE:
        return []
    time_share = min(small.time_share, 1.0)
    return [
        Finding(
            "small_messages",
            INFO,
            f"{percent(small.calls_share)} of collectives are below {binary_size(_SMALL_BYTES)}: "
            f"{percent(small.bytes_share)} of the bytes take {percent(time_share)} of the run on "
            "the wire",
            "fuse them (larger buckets, coalesced calls), or capture them in a CUDA graph",
            evidence=(
                Evidence(
                    "message sizes",
                    {"share_of_calls": round(small.calls_share, 4)},
                    f"ncclscope report {context.path} --by size",
                ),
            ),
            confidence=0.8,
            lost_share=time_share * 0.5,
        )
    ]


def find_slow_algorithms(context: RuleContext) -> list[Finding]:
    """The same function and size on as many ranks, far slower with one algorithm than another."""
    findings = [
        Finding(
            "algorithm",
            INFO,
            f"{choice.function} of {binary_size(choice.size_bytes)} takes "
            f"{choice.slow_ns / choice.fast_ns:.3g} times as long with {choice.slow} as with "
            f"{choice.fast}",
            "NCCL_ALGO, NCCL_PROTO or a tuner plugin can choose; measure with `ncclscope bench`",
            confidence=0.6,
            lost_share=min(choice.lost_share, 1.0),
            evidence=(
                Evidence(
                    "median time on the wire by algorithm",
                    {},
                    f"ncclscope report {context.path} --by +algorithm,+protocol",
                ),
            ),
        )
        for choice in algorithm_choices(context.run)
        if choice.slow_ns >= _SLOWER * choice.fast_ns and choice.operations >= _LEAST_SLOW
    ]
    return sorted(findings, key=lambda finding: -finding.lost_share)[:_MOST_CHOICES]


def find_long_launches(context: RuleContext) -> list[Finding]:
    """Operations that take longer to launch than to run."""
    launched = launches(context.run)
    if launched is None or launched.operations < _LEAST_LAUNCHES:
        return []
    if launched.longer_share < _LAUNCH_BOUND or launched.time_share < _TIME_SHARE:
        return []
    time_share = min(launched.time_share, 1.0)
    return [
        Finding(
            "launch_bound",
            INFO,
            f"{percent(launched.longer_share)} of collectives take longer to launch than to run; "
            f"launching takes {percent(time_share)} of the run",
            "capture them in a CUDA graph, group them, or make them fewer and larger",
            evidence=(
                Evidence(
                    "call to launch against time on the wire",
                    {"median_launch_us": round(launched.median_ns / 1e3, 3)},
                ),
            ),
            confidence=0.7,
            lost_share=time_share * 0.5,
        )
    ]


def find_missing_overlap(context: RuleContext) -> list[Finding]:
    """Several communicators whose kernels never run at the same time, one right after the other."""
    kernels = back_to_back(context.run)
    if kernels is None or kernels.changes < _LEAST_CHANGES or kernels.overlaps:
        return []
    if kernels.close < _CLOSE * kernels.changes or kernels.time_share < _TIME_SHARE:
        return []
    return [
        Finding(
            "launch_bound",
            INFO,
            f"collectives of different communicators run one right after the other on each GPU and "
            f"never at the same time; {percent(kernels.time_share)} of the run",
            "put them on different CUDA streams; see CUDA_DEVICE_MAX_CONNECTIONS",
            kind="serialised",
            evidence=(Evidence("back to back", {"times": kernels.close}),),
            confidence=0.5,
            lost_share=kernels.time_share * 0.25,
        )
    ]
