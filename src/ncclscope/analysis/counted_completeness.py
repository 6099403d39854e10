"""What is on record of a capture that has counters only: mode profile records no single calls."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from ncclscope.analysis.counter_totals import CounterTotals, Histograms, counter_totals
from ncclscope.model.completeness import Completeness
from ncclscope.model.model import Model
from ncclscope.model.schema import GPU_SOURCES


def has_counters_only(model: Model) -> bool:
    """Whether every recorded process was recorded in mode profile."""
    return bool(model.processes) and all(row.mode == "profile" for row in model.processes)


def with_counts(completeness: Completeness, totals: Iterable[CounterTotals]) -> Completeness:
    """A completeness with the calls and operations that were counted."""
    sums, sources, untimed = Counter[str](), Counter[str](), Counter[str]()
    for total in totals:
        sums.update(calls=total.calls, operations=total.operations, in_flight=total.in_flight)
        sources.update(total.sources)
        untimed.update(total.untimed)
    return replace(
        completeness,
        calls=sums["calls"],
        operations=sums["operations"],
        gpu_timed=sum(sources[name] for name in GPU_SOURCES),
        in_flight=sums["in_flight"],
        untimed={reason: count for reason, count in untimed.most_common() if count},
        calls_outside=0,  # of those that are counted
    )


def completeness_with_counts(model: Model) -> Completeness:
    """The model's completeness; of a capture without single calls, with what its counters count.

    Where mode profile recorded single calls for a while (`ctl`), it is about these.
    """
    if not has_counters_only(model) or len(model.tables["operations"]["event"]):
        return model.completeness
    return with_counts(
        model.completeness, [total for _, total in counter_totals(model, Histograms(model))]
    )
