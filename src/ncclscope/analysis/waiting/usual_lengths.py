"""How long each edge usually is: at its position in the step, over ranks and steps.

Transfers are compared by kind, over communicators; those of sends and receives over ranks. What
occurs too seldom at its position is compared by kind of kernel. Without anything to compare with,
nothing is usual (NaN).

The module is longer than others: each step corrects what the one before says of the same edges.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.analysis.waiting.after_sync import of_others_after_sync
from ncclscope.analysis.waiting.arrivals import END, START, Arrivals
from ncclscope.analysis.waiting.dependencies import HELD_BACK, Dependencies
from ncclscope.analysis.waiting.done_meanwhile import done_while_waiting
from ncclscope.analysis.waiting.kernels import Kernels
from ncclscope.analysis.waiting.lone_edges import lone_usual_ns, shown_by_one_rank
from ncclscope.analysis.waiting.own_past import HIGH, own_past
from ncclscope.analysis.waiting.own_roles import with_own_roles
from ncclscope.analysis.waiting.positions import LEAST_REPEATS
from ncclscope.analysis.waiting.quantiles import MemberQuantiles, member_quantiles
from ncclscope.analysis.waiting.shared_lengths import ranks_by_group, with_shared_lengths
from ncclscope.analysis.waiting.shared_work import with_shared_work
from ncclscope.analysis.waiting.slow_hosts import SlowHosts, far_slower_calls_ns, slow_hosts
from ncclscope.analysis.waiting.slow_launches import slow_calls_ns, slow_starts_ns
from ncclscope.analysis.waiting.slow_ranks import STEADY, without_slowness
from ncclscope.arrays import _abi
from ncclscope.arrays.types import Bools, Floats, Ints
from ncclscope.threads import Threads

_LEAST_OF_KIND = 2
_FREE_AT_PLACE = 3  # starts of a position that were not held back
_FAR_FASTER = 2.0  # than the usual rank
_FEW_RANKS = 4  # of which one may be the only fast one
_ONE_A_WAY = 2  # partners
_SLOW_STAGE = 1.4  # own time, times that of the median stage: less is design
_LEAST_STAGES = 4
_NOT_MADE_UP = 0.5  # of what a stage takes longer between one kind of calls, or starts
_COMPARED_IN_STAGES = (_abi.EDGE_GPU, _abi.EDGE_HOST, _abi.EDGE_HOST_AFTER_SYNC)
_SAMPLE, _SAMPLE_OF_PART = 1_000_000, 400_000  # kernels; of a part of a run that has more parts
RUN = 64  # calls in a row are sampled together
THREADS = 2
_WORTH_THREADS = 300_000  # kernels


@dataclass(frozen=True, slots=True)
class UsualLengths:
    """By event the usual length of the edge before it; NaN where nothing is usual.

    Steady excess is what edges of a rank, or transfers of a communicator, are longer than usual in
    the median repeat of a position, summed over repeats: single outliers do not count.
    """

    median_ns: Floats
    high_ns: Floats  # 90th percentile: "as usual" in a what-if, where noise is no excess
    steady_excess_ns: Floats  # by rank
    steady_transfer_excess_ns: Floats  # by row of `communicators`
    steady_transfer_ns: Floats  # all transfers of it, with the median length of their kind
    of_slow_ranks: Bools  # by event: slow ranks alone show it, and theirs is it at the usual speed
    slow_hosts: Bools  # by rank: its host takes longer between calls
    far_slower_hosts: Bools  # by rank: the same of a pipeline, where most may do so


@dataclass(frozen=True, slots=True)
class _Edges:
    """What usual lengths are taken from."""

    kernels: Kernels
    dependencies: Dependencies
    rank: Ints  # by kernel
    sample: Ints  # kernels
    every: int  # one of this many is in the sample
    lasting: Ints  # of the sample: not of the start-up
    wait_ns: Ints  # by kernel
    hosts: SlowHosts

    def column(self, values: npt.NDArray[Any], event: int) -> npt.NDArray[Any]:
        """Values by event as values by kernel."""
        return values.reshape(-1, 3)[:, event]


def usual_lengths_of(
    kernels: Kernels,
    dependencies: Dependencies,
    arrivals: Arrivals,
    ignored: Bools,
    whole: bool = True,
) -> UsualLengths:
    """The usual lengths of all edges. `ignored`: kernels that show no habit, as of the start-up;
    `whole`: kernels of a whole run.
    """
    count, ranks = len(kernels), len(kernels.ranks)
    every = max(-(-count // (_SAMPLE if whole else _SAMPLE_OF_PART)), 1)
    sample = np.arange(count)
    if every > 1:
        sample = np.flatnonzero(sample // RUN % every == 0)
    rank = kernels.rank.astype(np.int64)
    lasting = sample[~ignored[sample]]
    hosts = slow_hosts(kernels, dependencies, lasting)
    edges = _Edges(kernels, dependencies, rank, sample, every, lasting, arrivals.wait_ns, hosts)
    usual = np.empty((2, count, 3))  # median and high
    of_slow_ranks = np.zeros((count, 3), bool)

    def of_own_edges(event: int) -> Floats:
        usual[:, :, event], steady, of_slow_ranks[:, event] = _of_own_edges(edges, event)
        return steady

    # Sorting and gathering leave other threads room.
    with Threads(THREADS if count > _WORTH_THREADS else 1) as threads:
        own = [threads.submit(of_own_edges, event) for event in (0, 1)]
        usual[:, :, 2], excess, total = _of_transfers(edges, arrivals.events_ns[:, END])
        of_calls, of_starts = (steady.result() for steady in own)
    usual[:, dependencies.edge.reshape(-1, 3) == _abi.EDGE_ROOT] = 0.0
    return UsualLengths(
        usual[0].reshape(-1),
        usual[1].reshape(-1),
        of_calls + of_starts,
        excess[ranks:] * every,
        total[ranks:] * every,
        of_slow_ranks.reshape(-1),
        hosts.by_rank > 1,
        hosts.far_slower_ns > 0,
    )


def _of_own_edges(edges: _Edges, event: int) -> tuple[Floats, Floats, Bools]:
    """By kernel the usual length of the edge before its call or start; by rank steady excess; by
    kernel whether slow ranks alone show that length.
    """
    kernels, dependencies, rank = edges.kernels, edges.dependencies, edges.rank
    ranks = len(kernels.ranks)
    length, edge = (
        edges.column(values, event) for values in (dependencies.length_ns, dependencies.edge)
    )
    if event == START:
        position = with_shared_work(kernels, dependencies, edges.lasting)
    else:
        position = dependencies.position.astype(np.int64)
    # What the only root does in its role no other rank does.
    place = position * 2 + kernels.serves
    fine = place * 8 + edge
    back = edges.column(dependencies.back, event)
    held = (back == HELD_BACK) & (event != START)
    # Calls that a launch queue may have held back show at most how long hosts take.
    fine = fine * 16 + np.where(held & (edge == _abi.EDGE_HOST), 0, back)
    groups = _numbered(fine), _numbered(kernels.kind.astype(np.int64) * 8 + edge)
    done_before = np.zeros(len(length), np.int64)
    if event != START:
        after_sync = edge == _abi.EDGE_HOST_AFTER_SYNC
        ends = np.maximum(edges.column(dependencies.before, 0), 0) // 3
        wait = np.where(after_sync, edges.wait_ns[ends], 0)
        rows = edges.sample[after_sync[edges.sample]]
        done_before = done_while_waiting(groups[0], rank, length, wait, rows)
        length = length + done_before
    usual = _usual(groups, rank, length, edges.sample, edges.every)
    lasting = edges.lasting
    if event == START:
        usual = _of_free_starts(edges, groups, length, usual)
        lasting = lasting[dependencies.blocked[lasting] == 0]
        usual -= slow_starts_ns(kernels, dependencies, groups[0], edges.sample)
        # A slow rank is the only one whose work began before the launch: others waited until then.
        own = (edge == _abi.EDGE_LAUNCH) & _works_after_launch(kernels, length)
        _compare_with(_abi.EDGE_GPU, usual, fine, groups[0], rank, edge, own)
        shown = usual[0]
        places = groups[0], _numbered(position)
        usual = without_slowness(kernels, dependencies, usual, places, edges.sample)
        of_slow_ranks = usual[0] < shown
    else:
        of_slow_ranks = np.zeros(len(length), bool)
        lasting = lasting[~held[lasting]]
        # A host that comes late finds its GPU idle: it alone seems to have waited for it. Where
        # others fill the launch queue, it does wait.
        full = np.zeros(dependencies.positions, bool)
        full[dependencies.position[held]] = True
        own = (edge == _abi.EDGE_HOST_AFTER_SYNC) & ~full[dependencies.position]
        _compare_with(_abi.EDGE_HOST, usual, fine, groups[0], rank, edge, own)
        usual /= edges.hosts.too_long
        usual -= slow_calls_ns(kernels, dependencies, groups[0], edges.lasting)
        usual -= far_slower_calls_ns(kernels, dependencies, groups[0], edges.lasting, edges.hosts)
    np.fmin(usual, lone_usual_ns(kernels, dependencies, groups[0], event, edges.sample), out=usual)
    usual = with_own_roles(kernels.serves, groups[0], length, usual, edges.sample)
    table = _quantiles(groups[0], rank, length, lasting)
    steady = _steady(table, ranks)[0]
    if event != START:
        own = ~held & ~kernels.serves
        shown = of_others_after_sync(kernels, dependencies, groups[0], table, own)
        usual = np.fmin(usual, shown[:, groups[0]])
        steady += _steady_beyond(table, shown[0], ranks)
    if kernels.pair.any():
        ranks_of = ranks_by_group(kernels, groups[0])
        work_ns = _work_ns(edges)
        scale, excess = _stages(table, _edge_of_group(groups[0], edge), ranks_of, work_ns)
        at_usual_speed = _at_usual_speed(table, scale, groups[0], rank, edge)
        usual = np.where(np.isnan(at_usual_speed), usual, at_usual_speed)
        steady += excess
    # A start is long after its launch on a late rank, and after an end on others: both are own
    # times since the last that it waited for. Calls of a late host follow something else.
    is_start = event == START
    free = dependencies.blocked == 0 if is_start else np.ones(len(length), bool)
    usual = with_shared_lengths(kernels, usual, groups[0], length, free, any_group=is_start)
    if kernels.pair.any():
        usual = np.fmin(usual, _of_own_past(edges, event, groups[0], length, free & ~held))
    usual[:, held] = np.nan  # time in a launch queue is none of the host's
    # NaN stays: with nothing to compare with, nothing is usual.
    return np.maximum(usual - done_before, 0.0), steady * edges.every, of_slow_ranks


def _of_free_starts(
    edges: _Edges, groups: tuple[Ints, Ints], length: Ints, usual: Floats
) -> Floats:
    """Usual lengths, of starts that were not held back where there are some. Those that were do not
    show when their rank was ready, nor how long it takes from there to the next one. A few at the
    position itself tell more than many others of the kind, which may follow other work.
    """
    dependencies, sample = edges.dependencies, edges.sample
    if not dependencies.blocked.any():
        return usual
    for unclear in (dependencies.blocked != 0, _after_blocked(dependencies)):
        free = sample[~unclear[sample]]
        shown = _usual(groups, edges.rank, length, free, edges.every, _FREE_AT_PLACE)
        np.copyto(shown, usual, where=np.isnan(shown))
        usual = shown
    return usual


def _of_transfers(edges: _Edges, end_ns: Ints) -> tuple[Floats, Floats, Floats]:
    """By kernel the usual length of its transfer; by rank and then communicator steady excess, and
    the length of all transfers.
    """
    kernels, ranks = edges.kernels, len(edges.kernels.ranks)
    length = edges.column(edges.dependencies.length_ns, 2)
    communicator = kernels.communicator + ranks
    member = np.where(kernels.pair, edges.rank, communicator)
    kind = kernels.transfer_kind.astype(np.int64)
    usual = _usual((kind, kind), member, length, edges.sample, edges.every)
    if kernels.pair.any():
        usual = np.fmin(usual, _of_other_links(edges, kind, length)[:, kind])
    past = own_past(kind, member, length, end_ns, edges.sample)
    for place in (0, 1):
        rows = np.flatnonzero(~np.isnan(past[place])[kind])
        usual[place, rows] = past[place, kind[rows]]
    table = _quantiles(kind, member, length, edges.lasting)
    excess, total = _steady(table, int(communicator.max(initial=0)) + 1)
    return usual, excess, total


def _of_other_links(edges: _Edges, kind: Ints, length: Ints) -> Floats:
    """By kind of exchanges the median and the high quantile of a fast rank, where it is far faster
    than the usual one; NaN for others. Of three or four ranks it is the fastest: both ends of one
    slow link are two ranks, and would be what is usual. Of more, with one partner a way, it is that
    at the lower quartile: in a pipeline across four hosts, one host's links are most of all.
    """
    pairs = edges.sample[edges.kernels.pair[edges.sample]]
    several = np.diff(edges.kernels.partner_first)[pairs] > _ONE_A_WAY
    has_several = np.bincount(kind[pairs], several, minlength=int(kind.max(initial=0)) + 1) > 0
    table, kinds = _quantiles(kind, edges.rank, length, pairs), int(kind.max(initial=0)) + 1
    members = np.bincount(table.group, minlength=kinds)
    order = np.lexsort((table.quantiles[0], table.group))
    first = np.flatnonzero(np.diff(table.group[order], prepend=-1))
    of_kind = members[table.group[order[first]]]
    fastest = order[first + np.where(of_kind > _FEW_RANKS, of_kind // 4, 0)]
    usual = table.of_usual_member(0, kinds)[table.group[fastest]]
    enough = (of_kind > 2) & (table.count[fastest] >= LEAST_REPEATS)
    enough &= (of_kind <= _FEW_RANKS) | ~has_several[table.group[fastest]]
    fastest = fastest[enough & (table.quantiles[0][fastest] * _FAR_FASTER < usual)]
    values = np.full((2, kinds), np.nan)
    values[:, table.group[fastest]] = [table.quantiles[place][fastest] for place in (0, 1)]
    return values


def _works_after_launch(kernels: Kernels, length: Ints) -> Bools:
    """By start whether most of what is before it came after its launch, so that the GPU worked."""
    since = kernels.events_ns[:, START] - kernels.launched_ns
    return np.asarray(since > length / 2)


def _compare_with(
    others: int,
    usual: Floats,
    fine: Ints,
    group: Ints,
    rank: Ints,
    edge: npt.NDArray[np.int8],
    own: Bools,
) -> None:
    """Of edges `own`, where a rank alone has such at a position: what is usual of them is no longer
    than edges of the kind `others` on other ranks there.
    """
    of_one = shown_by_one_rank(group, rank)[group]
    alone = of_one & own
    if not alone.any():
        return
    shown = np.flatnonzero((edge == others) & ~of_one)
    place = fine // 128  # the position
    values = np.full((2, int(place.max()) + 1), np.nan)  # unknown
    values[:, place[shown]] = usual[:, shown]
    usual[:, alone] = np.fmin(usual[:, alone], values[:, place[alone]])


def _after_blocked(dependencies: Dependencies) -> Bools:
    """By kernel whether its start was held back, or follows a start that was."""
    blocked = dependencies.blocked != 0
    before = dependencies.before[START::3]
    return np.asarray(blocked | ((before % 3 == START) & blocked[before // 3]))


def _numbered(codes: Ints) -> Ints:
    """Codes as numbers from 0 without gaps."""
    occurs = np.zeros(int(codes.max(initial=0)) + 1, bool)
    occurs[codes] = True
    return np.asarray((np.cumsum(occurs) - 1)[codes])


def _quantiles(group: Ints, member: Ints, length: Ints, rows: Ints) -> MemberQuantiles:
    groups = int(group.max(initial=0)) + 1
    return member_quantiles(group[rows], groups, member[rows], length[rows], (0.5, HIGH))


def _usual(
    groups_of: tuple[Ints, Ints], member: Ints, length: Ints, sample: Ints, every: int,
    least_repeats: int = LEAST_REPEATS,
) -> Floats:  # fmt: skip
    """Median and high quantile by group: the fine one, or the coarse one where that is small. What
    one member alone has varies by its own faults, too: as a stage of a pipeline whose rank is late
    in every third step. Its noise is no more than that of others in the coarse group.
    """
    by_group = []  # a group's values; by edge they would take four times the room of the result
    alone = []  # by group whether it has one member
    for group, least in zip(groups_of, (least_repeats, _LEAST_OF_KIND), strict=True):
        groups = int(group.max(initial=0)) + 1
        table = _quantiles(group, member, length, sample)
        enough = table.count_by_group(groups) * every >= least
        values = [table.of_usual_member(place, groups) for place in (0, 1)]
        by_group.append([np.where(enough, value, np.nan) for value in values])
        alone.append(np.bincount(table.group, minlength=groups) == 1)
    fine, coarse = groups_of
    usual = np.empty((2, len(fine)))
    for place, of_fine, of_coarse in zip((0, 1), *by_group, strict=True):
        np.take(of_fine, fine, out=usual[place], mode="clip")  # `raise` would copy all of it
        missing = np.flatnonzero(np.isnan(usual[place]))
        usual[place, missing] = of_coarse[coarse[missing]]
    own = np.flatnonzero(alone[0][fine] & ~alone[1][coarse])
    noise = (by_group[1][1] - by_group[1][0])[coarse[own]]
    usual[1, own] = np.fmin(usual[1, own], usual[0, own] + noise)
    return usual


def _edge_of_group(group: Ints, edge: npt.NDArray[np.int8]) -> Ints:
    """By group the kind of its edges."""
    kinds = np.zeros(int(group.max(initial=0)) + 1, np.int64)
    kinds[group] = edge
    return kinds


def _of_own_past(edges: _Edges, event: int, group: Ints, length: Ints, free: Bools) -> Floats:
    """By kernel the median and the high quantile of the edge before its call or start in a better
    past of its own, on stages without peers: a GPU that became slow in the middle of a run would
    have its slow half as what is usual. NaN for others. `free`: by kernel whether it was not held
    back.
    """
    position = edges.dependencies.position.astype(np.int64)
    alone = shown_by_one_rank(position, edges.rank)[position] & free
    rows = edges.lasting[alone[edges.lasting]]
    past = own_past(group, edges.rank, length, edges.kernels.events_ns[:, event], rows)
    return np.where(alone, past[:, group], np.nan)


def _work_ns(edges: _Edges) -> Floats:
    """By rank the sum of its own time before calls and starts, each as long as in the median of its
    position: one long pause is no work of a stage.
    """
    dependencies, ranks = edges.dependencies, len(edges.kernels.ranks)
    total = np.zeros(ranks)
    for event in (0, START):
        edge = edges.column(dependencies.edge, event)
        rows = edges.lasting[np.isin(edge[edges.lasting], _COMPARED_IN_STAGES)]
        place = _numbered(dependencies.position.astype(np.int64) * 8 + edge)
        table = _quantiles(place, edges.rank, edges.column(dependencies.length_ns, event), rows)
        often = table.count >= STEADY
        total += np.bincount(
            table.member[often], (table.quantiles[0] * table.count)[often], minlength=ranks
        )
    return total


def _stages(
    table: MemberQuantiles, edge: Ints, ranks_of: Ints, work_ns: Floats
) -> tuple[Floats, Floats]:
    """By rank and kind of edge what its usual lengths have to be multiplied with, and by rank what
    that makes of steady excess. In a pipeline each stage may be the only one of its kind, so that
    nothing at its positions shows that it is slow. Stages are given about equal work: one whose
    own time is far longer than that of the others is slow, whatever the reason. A stage that ends
    a step with a receive computes before the next call, and others before their last send: what one
    kind of edge has more than on others, another one has less. `ranks_of`: by group how many ranks
    have such edges; `work_ns`: by rank its own time.
    """
    kinds, ranks = int(edge.max(initial=0)) + 1, len(work_ns)
    more_work_ns = work_ns - np.sort(work_ns)[(ranks - 1) // 2]
    key = table.member * kinds + edge[table.group]
    total = np.bincount(key, table.quantiles[0] * table.count, minlength=ranks * kinds)
    total = total.reshape(ranks, kinds)
    scale, excess = np.ones((ranks, 8)), np.zeros(ranks)
    of_one = (ranks_of < 2)[table.group]
    alone = np.bincount(key, of_one * table.quantiles[0] * table.count, ranks * kinds)
    for kind in _COMPARED_IN_STAGES:
        if kind >= kinds:
            continue
        own = total[:, kind]
        usual = float(np.sort(own)[(ranks - 1) // 2])
        slow = (own > _SLOW_STAGE * usual) & (usual > 0) & (ranks >= _LEAST_STAGES)
        slow &= alone.reshape(ranks, kinds)[:, kind] > own / 2  # others are compared with peers
        slow &= more_work_ns > _NOT_MADE_UP * (own - usual)
        if slow.sum() > ranks // 4:
            continue  # as much work as the design has it
        scale[slow, kind] = usual / own[slow]
        excess += np.where(slow, own - usual, 0.0)
    return scale, excess


def _at_usual_speed(
    table: MemberQuantiles, scale: Floats, group: Ints, rank: Ints, edge: npt.NDArray[np.int8]
) -> Floats:
    """By edge of a slow stage what its own median and high quantile would be at the usual speed;
    NaN for others. Where other ranks make the same calls, usual lengths are right already, and must
    not be scaled again.
    """
    lengths = np.full((2, len(group)), np.nan)
    slow = np.flatnonzero(scale[rank, edge] < 1)
    if not len(slow):
        return lengths
    ranks = len(scale)
    known, wanted = table.group * ranks + table.member, group[slow] * ranks + rank[slow]
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    # A single pause is no speed.
    often = (known[place] == wanted) & (table.count[place] >= STEADY)
    slow, place = slow[often], place[often]
    for number, values in enumerate(table.quantiles):
        lengths[number, slow] = values[place] * scale[rank[slow], edge[slow]]
    return lengths


def _steady(table: MemberQuantiles, members: int) -> tuple[Floats, Floats]:
    """By member how much longer its edges are than usual in the median repeat, summed over
    repeats, and the sum of the median lengths.
    """
    groups = int(table.group.max(initial=0)) + 1
    excess = _steady_beyond(table, table.of_usual_member(0, groups), members)
    total = np.bincount(table.member, table.quantiles[0] * table.count, minlength=members)
    return excess, total.astype(np.float64)


def _steady_beyond(table: MemberQuantiles, usual: Floats, members: int) -> Floats:
    """By member how much longer than usual its edges are in the median repeat, summed over repeats.
    `usual`: by group; NaN: nothing is usual there.
    """
    often = table.count >= STEADY
    beyond = np.maximum(table.median_at_least - usual[table.group], 0.0)
    beyond = np.where(often, np.nan_to_num(beyond), 0.0)
    return np.bincount(table.member, beyond * table.count, minlength=members).astype(np.float64)
