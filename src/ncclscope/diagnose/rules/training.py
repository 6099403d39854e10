"""What training steps lose time to, where the capture has a training context."""

from ncclscope.analysis.training_losses import (
    backward_prefetches,
    last_bucket,
    serial_parts,
    starved_share,
)
from ncclscope.analysis.training_steps import StepSummary, step_summary
from ncclscope.diagnose.finding import CRITICAL, INFO, WARNING, Evidence, Finding
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import amount, duration, percent, plural

_DATA_SHARE, _GRAVE_DATA_SHARE = 0.1, 0.3  # of a step
_STARVED_SHARE = 0.5  # of steps whose GPUs had nothing left to do
_SERIAL_SHARE = 0.1
_FEW_STEPS = 3
_FEW_GATHERS = 20
_LAST_BUCKET_TIMES, _LAST_BUCKET_SHARE = 2.0, 0.05
_MOST_PARTS = 3


def find(context: RuleContext) -> list[Finding]:
    """Findings about data loading, exposed communication, prefetching and buckets."""
    if not context.model.has_context:
        return []
    steps = step_summary(context.model)
    if steps is None or steps.steps - steps.warm_up < _FEW_STEPS:
        return []
    return [
        *_data_bound(context, steps),
        *_serial(context, steps),
        *_without_prefetch(context),
        *_last_bucket(context, steps),
    ]


def _data_bound(context: RuleContext, steps: StepSummary) -> list[Finding]:
    share = steps.parts.data / steps.parts.length if steps.parts.length else 0.0
    if share < _DATA_SHARE or starved_share(context.model, steps) < _STARVED_SHARE:
        return []
    return [
        Finding(
            "training",
            CRITICAL if share >= _GRAVE_DATA_SHARE else WARNING,
            f"steps wait {duration(steps.parts.data)} for data, {percent(share)} of their time, "
            "and the GPUs have nothing to do meanwhile",
            "more workers of the data loader, pinned memory, a larger prefetch factor, or storage "
            "that is nearer",
            kind="data",
            evidence=(
                Evidence(
                    f"mean of steps {steps.first + steps.warm_up} to {steps.last}",
                    {"data_us": round(steps.parts.data / 1e3, 3), "share": round(share, 4)},
                    f"ncclscope report {context.path} --by phase",
                ),
            ),
            confidence=0.85,
            lost_share=min(share, 1.0),
        )
    ]


def _serial(context: RuleContext, steps: StepSummary) -> list[Finding]:
    exposed = steps.parts.exposed_low or 0.0
    share = exposed / steps.parts.length if steps.parts.length else 0.0
    if share < _SERIAL_SHARE:
        return []
    parts = serial_parts(context.model)[:_MOST_PARTS]
    listed = ", ".join(
        f"{part.function} of {part.module or 'no known module'} on {part.dimension or '?'}"
        for part in parts
    )
    return [
        Finding(
            "training",
            WARNING,
            f"{duration(exposed)} of a step, {percent(share)}, is communication on the stream that "
            f"computes, so nothing hides it: most of it {listed}",
            "asynchronous collectives, or overlap of tensor parallelism with computation",
            kind="serial",
            evidence=(
                Evidence(
                    "on the computing stream",
                    {"exposed_us": round(exposed / 1e3, 3), "share": round(share, 4)},
                    f"ncclscope report {context.path} --by module,function",
                ),
            ),
            confidence=0.9,
            lost_share=min(share, 1.0),
        )
    ]


def _without_prefetch(context: RuleContext) -> list[Finding]:
    prefetches = backward_prefetches(context.model)
    if prefetches.all_gathers < _FEW_GATHERS or 2 * prefetches.ahead >= prefetches.all_gathers:
        return []
    late = prefetches.all_gathers - prefetches.ahead
    return [
        Finding(
            "training",
            INFO,
            f"{late:,} of {plural(prefetches.all_gathers, 'AllGather')} in backward are called "
            "when their module needs them, not ahead",
            "FSDP prefetches the next module by itself in the order of forward: look for modules "
            "that run in another order, or set set_modules_to_backward_prefetch",
            kind="prefetch",
            evidence=(
                Evidence(
                    "AllGathers in backward",
                    {"all_gathers": prefetches.all_gathers, "ahead": prefetches.ahead},
                    f"ncclscope report {context.path} --by module,phase --op AllGather",
                ),
            ),
            confidence=0.7,
        )
    ]


def _last_bucket(context: RuleContext, steps: StepSummary) -> list[Finding]:
    bucket = last_bucket(context.model)
    if bucket is None or bucket.size_bytes < _LAST_BUCKET_TIMES * bucket.usual_bytes:
        return []
    share = bucket.time_ns / steps.parts.length if steps.parts.length else 0.0
    if share < _LAST_BUCKET_SHARE:
        return []
    return [
        Finding(
            "training",
            INFO,
            f"the last bucket of DistributedDataParallel ({bucket.module}) has "
            f"{amount(bucket.size_bytes)}, the others {amount(bucket.usual_bytes)}: its AllReduce "
            f"takes {duration(bucket.time_ns)} when backward has ended",
            "a smaller bucket_cap_mb, or the large parameters first in backward",
            kind="bucket",
            evidence=(
                Evidence(
                    "last AllReduce of a step",
                    {"bytes": bucket.size_bytes, "time_us": round(bucket.time_ns / 1e3, 3)},
                    f"ncclscope report {context.path} --by module,size",
                ),
            ),
            confidence=0.7,
            lost_share=min(share, 1.0),
        )
    ]
