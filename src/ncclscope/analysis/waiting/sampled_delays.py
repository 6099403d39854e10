"""Late ranks by a sample of operations: what they cost, estimated for all operations.

Where one call of 64 is timed, one delay of 64 is seen. The account of waiting holds the seen ones,
which are a small share of the run, and predictions know of no others. Each stands for those of the
calls that were not chosen.

Example: a rank timed 37 of 2,400 AllReduces. Rank 2 was about 8 ms late to 36 of them, and rank 0
waited 91 ms for it in them: 0.5 % of a run of 17 s. Each timed call stands for 65, so rank 0 waited
about 5.9 s for rank 2 in all calls: 35 % of the run.
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.selection import Selection
from ncclscope.analysis.waiting.origins import Origin, RankWaiting, Waiting, WaitingAccount
from ncclscope.model.schema import NOT_SAMPLED

# Chosen on sampled jobs of the laboratory (tests/support/laboratory): healthy ones have no rank
# that is the origin of as much of the waiting as often.
_LEAST_TIMES = 8
_LEAST_PART = 0.5  # of all waiting that was seen since the start-up
_MOST_TIMED = 0.5  # of all operations; where more are timed, what is seen is most of what there is


@dataclass(frozen=True, slots=True)
class SampledDelays:
    """One rank that others wait for, as far as a sample shows."""

    rank: int  # global
    kind: str  # of its edges that were longer than usual
    times: int  # delays that were seen
    typical_ns: int
    seen_ns: int  # how long the rank waited that waited most for it
    share: float  # of the run: the same for all operations, estimated
    timed: int  # operations
    operations: int


def sampled_delays(waiting: Waiting, account: WaitingAccount) -> tuple[SampledDelays, ...]:
    """Late ranks of a sampled run; none where most operations were timed."""
    model = waiting.run.model
    if NOT_SAMPLED not in model.words.get("reason", ()):
        return ()
    from ncclscope.analysis.sampled_operations import sampled_operations  # needs DuckDB

    sample = sampled_operations(model, Selection(), ())
    total_ns = account.total_ns - account.start_up_ns
    if sample is None or total_ns <= 0 or waiting.run.span_ns <= 0:
        return ()
    operations = model.tables["operations"]
    if len(sample.rows) > _MOST_TIMED * len(operations["process"]):
        return ()
    times_ns = np.asarray(operations["duration_ns"])[sample.rows].astype(np.float64)
    stands_for = float((times_ns * sample.weight).sum() / max(times_ns.sum(), 1.0))
    found: list[tuple[RankWaiting, Origin]] = []
    for row in account.ranks:
        own = [origin for origin in account.origins if origin.rank == row.rank]
        if not own or row.origin_ns < _LEAST_PART * total_ns:
            continue
        main = max(own, key=lambda origin: origin.waiting_ns)
        if main.times >= _LEAST_TIMES:
            found.append((row, main))
    waits = waiting.waits_because_of([row.rank for row, _ in found]) if found else {}
    late = []
    for row, main in found:
        most_ns = int(waits[row.rank].max(initial=0))
        share = min(most_ns * stands_for / waiting.run.span_ns, 1.0)
        late.append(
            SampledDelays(
                row.rank, main.kind, main.times, main.typical_ns, most_ns, share,
                len(sample.rows), len(operations["process"]),
            )
        )  # fmt: skip
    return tuple(late)
