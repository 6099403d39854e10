"""Collectives that are slow because they are large."""

from shlex import quote

from ncclscope.analysis.size_bandwidth import SlowSizes, slow_sizes
from ncclscope.diagnose.finding import (
    CRITICAL,
    GRAVE_SHARE,
    PROBLEM_SHARE,
    WARNING,
    Evidence,
    Finding,
)
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import binary_size, percent, ranks_in_words

_SLOWER = 2.5  # times: protocols and caches explain less


def find(context: RuleContext) -> list[Finding]:
    """A finding for each communicator and function whose large collectives are slow."""
    findings = [
        _finding(context, sizes, sizes.lost_ns / context.run.span_ns)
        for sizes in slow_sizes(context.run, context.synchronized, _SLOWER)
        if sizes.lost_ns >= PROBLEM_SHARE * context.run.span_ns
    ]
    return sorted(findings, key=lambda finding: -finding.lost_share)


def _finding(context: RuleContext, sizes: SlowSizes, share: float) -> Finding:
    run = context.run
    name, function = run.model.communicator_names[sizes.communicator], sizes.function
    ranks = tuple(run.ranks_of(sizes.communicator))
    word, share = run.word("function", function), min(share, 1.0)
    return Finding(
        "slow_link",
        CRITICAL if share >= GRAVE_SHARE else WARNING,
        f"{word} on {name} ({ranks_in_words(ranks)}) is slow from {binary_size(sizes.slow_bytes)} "
        f"on: {sizes.slow_gb_s:.3g} GB/s on the wire, {sizes.fast_gb_s:.3g} GB/s of "
        f"{binary_size(sizes.fast_bytes)}, with the same algorithm and protocol; "
        f"{percent(share)} of the run lost",
        "one of its links may fail under load: record in mode full to see which, and look at "
        "error counters; or transfers of this size run beside other work on the GPU or the network",
        kind="large messages",
        communicators=(name,),
        evidence=(
            Evidence(
                "median bus bandwidth by size",
                {
                    "slow_bytes": sizes.slow_bytes,
                    "slow_gb_s": round(sizes.slow_gb_s, 3),
                    "fast_bytes": sizes.fast_bytes,
                    "fast_gb_s": round(sizes.fast_gb_s, 3),
                },
                f"ncclscope report {context.path} --comm {quote(name)} --op {quote(word)}",
            ),
        ),
        confidence=0.7,
        lost_share=share,
    )
