"""Late ranks by a sample of operations, and what they cost, estimated for all operations.

What a rank did before a timed call is on record for a few calls only: the account of waiting finds
few origins then, gaps between timed calls look like pauses, and replays know of no other calls. The
arrivals of the timed calls tell: whoever comes last lets the others wait. A rank that passes on the
lateness of another one waits as well; the one that it began on hardly does.

    rank      0     1     2     3
    waited    396   394   6     392 ms     in 240 collectives: others waited 388 ms for rank 2

Each timed call stands for those that were not chosen. Stages of a pipeline come at different times
by design: only communicators of which no two members are stages of one pipeline count. Ranks that
receive more than others have more to do, and are not named.

Example: 37 of 2,400 AllReduces were timed. Rank 2 came last to 36 of them, and others waited 91 ms
for it: 0.5 % of a run of 17 s. Each timed call stands for 65, so others waited about 5.9 s for rank
2 in all calls: 35 % of the run. The run loses no more than that, and may lose less: who waits for a
GPU that is slow between AllReduces has work of its own to do meanwhile.
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.run import Run
from ncclscope.analysis.selection import Selection
from ncclscope.analysis.waiting.exchange_partners import partner_ranks
from ncclscope.analysis.waiting.kernels import is_sparse
from ncclscope.analysis.waiting.origins import Waiting, typical_excess
from ncclscope.analysis.waiting.unequal_data import MORE_DATA
from ncclscope.arrays.joins import factorize
from ncclscope.arrays.types import Bools, Floats, Ints
from ncclscope.model.match.attempts import connected_components
from ncclscope.model.schema import NONE, RECV, SEND
from ncclscope.model.streams import MEETS_NEEDED, meets_of, rules_of
from ncclscope.nccl.functions import EVERYBODY

_LOOKED_AT = 200  # collectives that say what was late
# Chosen on sampled jobs of the laboratory (tests/support/laboratory).
_FAR_LESS = 0.5  # than the one of the others that waited least
_LEAST_PASSED_ON = 0.25  # of what the median one of the others waited
_HARDLY = 0.5  # of what the others waited for the same collective
_LEAST_TIMES = 5
_CHANCE = 0.002
_MOSTLY = 0.5  # of how late starts are


@dataclass(frozen=True, slots=True)
class SampledDelays:
    """A rank that others wait for, or all ranks of a host, as far as a sample shows."""

    ranks: tuple[int, ...]  # global
    kind: str  # compute, launch or gpu: what was late
    times: int  # timed collectives to which it came last
    typical_ns: int
    seen_ns: int  # how long another rank waited for it then, on average
    share: float  # of the run: the same for all operations, estimated
    timed_share: float  # of all operations


@dataclass(frozen=True, slots=True)
class _Sample:
    """Kernels of timed collectives in which everybody waits for the last."""

    rows: Ints  # of kernels
    meeting: Ints  # by row, numbered
    weight: Floats  # by meeting: how many calls it stands for


@dataclass(frozen=True, slots=True)
class _Waits:
    """By member of a meeting, one row each."""

    meeting: Ints
    member: Ints
    own_ns: Floats  # how long it waited; a host: on average
    others_ns: Floats  # the same of the others, on average; NaN: there were none

    def __getitem__(self, rows: Bools) -> "_Waits":
        return _Waits(*(getattr(self, name)[rows] for name in self.__slots__))


def sampled_delays(waiting: Waiting) -> tuple[SampledDelays, ...]:
    """The late rank of a sampled run, or the ranks of a late host; none where most operations were
    timed.
    """
    run = waiting.run
    if not is_sparse(run.model, waiting.kernels.timed_share) or run.span_ns <= 0:
        return ()
    one_way = _one_way(run)
    sample = _sample_of(waiting, one_way)
    if not len(sample.rows):
        return ()
    ranks = waiting.kernels.ranks
    nodes = run.node_of[ranks]
    late = _late_member(waiting, sample, np.arange(len(ranks)))
    if late is None and len(np.unique(nodes)) > 1 and (nodes != NONE).all():
        late = _late_member(waiting, sample, nodes)
    if late is None or _receive_more(run, late.ranks):
        return ()
    # Of a rank that sends to it, and is in no such collective, nothing shows that it was late.
    sources = one_way[np.isin(one_way[:, 1], late.ranks), 0]
    shown = ranks[np.unique(waiting.kernels.rank[sample.rows])]
    return (late,) if np.isin(sources, shown).all() else ()


def _sample_of(waiting: Waiting, one_way: Ints) -> _Sample:
    from ncclscope.analysis.sampled_operations import sampled_operations  # needs DuckDB

    kernels, run = waiting.kernels, waiting.run
    words = run.model.words
    columns = {name: run.operations[name][kernels.row] for name in MEETS_NEEDED}
    rules = rules_of(words["function"], words["algorithm"])
    judged = meets_of(columns, rules, rough=True) == EVERYBODY
    judged &= (kernels.meeting != NONE) & ~waiting.start_up
    judged &= _of_one_stage(run, one_way)[kernels.communicator]
    rows = np.flatnonzero(judged)
    _, first, meeting = np.unique(kernels.meeting[rows], return_index=True, return_inverse=True)
    weight = np.ones(len(run.current))
    sample = sampled_operations(run.model, Selection(), ())
    if sample is not None:
        weight[sample.rows] = sample.weight
    return _Sample(rows, meeting.reshape(-1), weight[kernels.row[rows[first]]])


def _one_way(run: Run) -> Ints:
    """Pairs of ranks of which the first sends to the second in calls that receive nothing, as
    stages of a pipeline do.
    """
    rows = np.flatnonzero(run.p2p)
    rank, group = run.column("global_rank", rows), run.column("group_call", rows)
    call = factorize(rank << 40 | group)[0]
    is_send = run.column("form", rows) == SEND
    both = np.bincount(call, is_send, minlength=1) > 0
    both &= np.bincount(call, ~is_send, minlength=1) > 0
    one_way = ~both[call] | (group == NONE)
    rank, partner, sends = rank[one_way], partner_ranks(run, rows[one_way]), is_send[one_way]
    ends = np.stack([np.where(sends, rank, partner), np.where(sends, partner, rank)], axis=1)
    return np.unique(ends[ends.min(axis=1, initial=0) != NONE], axis=0)


def _of_one_stage(run: Run, one_way: Ints) -> Bools:
    """By communicator whether no two of its members send to each other one way, directly or over
    others: stages of a pipeline come at different times by design.
    """
    links = [frozenset(pair) for pair in one_way.tolist()]
    chain = {
        end: number
        for pair, number in zip(links, connected_components(links), strict=True)
        for end in pair
    }
    of_one = []
    for row in range(len(run.model.communicator_names)):
        chains = [chain[rank] for rank in run.ranks_of(row) if rank in chain]
        of_one.append(len(set(chains)) == len(chains))
    return np.array(of_one, bool)


def _receive_more(run: Run, late: tuple[int, ...]) -> bool:
    """Whether these ranks receive more than others in exchanges, as popular experts do: they have
    more to do then.
    """
    rows = np.flatnonzero(run.p2p & (run.operations["form"] == RECV))
    rank = run.column("global_rank", rows)
    ranks = np.unique(rank)
    received = np.bincount(rank, run.column("size_bytes", rows))[ranks]
    is_late = np.isin(ranks, late)
    own, others = received[is_late], received[~is_late]
    return (
        len(own) > 0
        and len(others) > 0
        and float(np.median(own)) > MORE_DATA * float(np.median(others))
    )


def _late_member(waiting: Waiting, sample: _Sample, member_of: Ints) -> SampledDelays | None:
    """The member whose ranks all wait far less than any other: a rank, or a host. `member_of`: by
    place of a rank.
    """
    kernels, members = waiting.kernels, int(member_of.max()) + 1
    rank, wait_ns = kernels.rank[sample.rows], waiting.arrivals.wait_ns[sample.rows]
    member = member_of[rank]
    waits = _waits(sample, member, wait_ns)
    waits = waits[~np.isnan(waits.others_ns)]
    if not len(waits.member):
        return None
    weight = sample.weight[waits.meeting]
    waited_ns = np.bincount(waits.member, waits.own_ns * weight, minlength=members)
    waited_ns[np.bincount(waits.member, minlength=members) == 0] = np.inf
    place = int(np.argmin(waited_ns))
    by_rank = np.bincount(rank, wait_ns * sample.weight[sample.meeting], len(member_of))
    is_others = (member_of != place) & (np.bincount(rank, minlength=len(member_of)) > 0)
    others = by_rank[is_others]
    if by_rank[member_of == place].max() >= _FAR_LESS * others.min():
        return None
    if others.min() < _LEAST_PASSED_ON * np.median(others):
        return None  # several ranks hardly wait, as those that share what delays them
    is_its = waits.member == place
    its, stands_for = waits[is_its], weight[is_its]
    late_ns = its.others_ns - its.own_ns
    lost_ns = np.maximum(late_ns, 0.0) * stands_for
    if not lost_ns.any():
        return None
    typical_ns = typical_excess(late_ns, lost_ns)[0]
    error_ns = np.zeros(len(sample.weight), np.int64)
    np.maximum.at(error_ns, sample.meeting, kernels.error_ns[sample.rows])
    least_ns = np.maximum(error_ns[waits.meeting], typical_ns / 2)
    times = _times_last(waits, waits.others_ns > least_ns, is_its)
    if times == 0:
        return None
    late = late_ns >= typical_ns / 2
    return SampledDelays(
        tuple(kernels.ranks[member_of == place].tolist()),
        _kind(waiting, sample, its.meeting[late], member == place),
        times,
        int(typical_ns),
        int(late_ns[late].sum()),
        min(float((late_ns * stands_for).sum()) / waiting.run.span_ns, 1.0),
        kernels.timed_share,
    )


def _waits(sample: _Sample, member: Ints, wait_ns: Ints) -> _Waits:
    members = int(member.max()) + 1
    pairs, place = np.unique(sample.meeting * members + member, return_inverse=True)
    place = place.reshape(-1)
    own = np.bincount(place, wait_ns) / np.bincount(place)
    meeting = pairs // members
    count, total = np.bincount(meeting), np.bincount(meeting, own)
    others = np.where(
        count[meeting] > 1, (total[meeting] - own) / np.maximum(count[meeting] - 1, 1), np.nan
    )
    return _Waits(meeting, pairs % members, own, others)


def _times_last(waits: _Waits, notable: Bools, is_its: Bools) -> int:
    """How often a member came last where others waited notably; 0 where it may be chance: by
    Chernoff's bound of the chance that any of them does so as often, were all alike.
    """
    last = notable & (waits.own_ns <= _HARDLY * waits.others_ns)
    any_of = np.zeros(int(waits.meeting.max()) + 1, bool)
    any_of[waits.meeting[notable]] = True
    counts = any_of[waits.meeting]
    chances, times = int(counts[is_its].sum()), int(last[is_its].sum())
    if times < _LEAST_TIMES:
        return 0
    part, usual = times / chances, float(last.sum() / counts.sum())
    if part <= usual:
        return 0
    bits = part * np.log(part / usual)
    if part < 1:
        bits += (1 - part) * np.log((1 - part) / (1 - usual))
    members = len(np.unique(waits.member))
    return times if members * np.exp(-chances * bits) < _CHANCE else 0


def _kind(waiting: Waiting, sample: _Sample, meetings: Ints, of_member: Bools) -> str:
    """What was late already: its calls, the launches behind them, or the GPU alone."""
    kernels = waiting.kernels
    times = np.column_stack([kernels.events_ns[:, 0], kernels.launched_ns, kernels.events_ns[:, 1]])
    later = []
    for meeting in meetings[:_LOOKED_AT].tolist():
        here = sample.meeting == meeting
        own, others = sample.rows[here & of_member], sample.rows[here & ~of_member]
        later.append(np.median(times[own], axis=0) - np.median(times[others], axis=0))
    call, launch, start = np.median(later, axis=0).tolist()
    if call > _MOSTLY * start:
        return "compute"
    return "launch" if launch > _MOSTLY * start else "gpu"
