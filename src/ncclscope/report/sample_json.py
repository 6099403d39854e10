"""What JSON says about a group whose times come from a sample, or are upper bounds."""

from typing import Any

from ncclscope.analysis.groups import Group
from ncclscope.analysis.sampling import Estimate, GroupSample


def estimate_json(estimate: Estimate | None) -> dict[str, float | None] | None:
    """A number and its interval."""
    return None if estimate is None else estimate.as_json(6)


def _sample(sample: GroupSample) -> dict[str, Any]:
    """The intervals of a group whose times come from a sample."""
    return {
        "timed": sample.timed,
        "operations": sample.operations,
        "total_ns": estimate_json(sample.total_ns),
        "median_ns": estimate_json(sample.median_ns),
        "mean_ns": estimate_json(sample.mean_ns),
        "p99_ns": estimate_json(sample.p99_ns),
        "algbw_gbs": estimate_json(sample.algbw_gbs),
        "busbw_gbs": estimate_json(sample.busbw_gbs),
        "busbw_wire_gbs": estimate_json(sample.busbw_wire_gbs),
        "wait_share": estimate_json(sample.wait_share),
        "relative_wait_share": estimate_json(sample.relative_wait_share),
        "run_share": estimate_json(sample.run_share),
    }


def bounds_json(group: Group) -> dict[str, Any]:
    """Fields that groups have only where they say something."""
    fields: dict[str, Any] = {}
    if group.durations and group.durations.upper_bound:
        fields["duration_is_upper_bound"] = True
    if group.sample:
        fields["sample"] = _sample(group.sample)
    return fields
