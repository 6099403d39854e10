"""How fast the links between ranks are against their peers, as numbers without a threshold.

A link is compared by transfers: proxy steps where they are on record (mode full), else sends with
their receives. Which link is slow enough for a finding is decided in diagnose/rules/slow_link.py.
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.kernels import Kernels
from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.analysis.waiting.own_past import own_past
from ncclscope.analysis.waiting.quantiles import member_quantiles
from ncclscope.arrays.joins import factorize
from ncclscope.arrays.types import Bools, Floats, Ints
from ncclscope.model.schema import NONE, SEND

_RANK_BITS = 20  # a link is source << 20 | destination
_RANK_MASK = (1 << _RANK_BITS) - 1
_FEW_KNOWN = 10  # transfers of a link
_HIGH = 0.85  # quantile of what is slow now and then


@dataclass(frozen=True, slots=True)
class Transfers:
    """Single transfers from one rank to another, one a row."""

    source: Ints  # global ranks
    destination: Ints
    operation: Ints  # transfers of one operation are no independent samples
    kind: Ints  # transfers of one kind are alike: a power of two of bytes, or kinds of kernels
    time_ns: Floats
    waits_ns: dict[str, Floats]  # what the sender waited for: gpu, peer, network
    # Others show only what is usual of their kind.
    counts: Bools


@dataclass(frozen=True, slots=True)
class Links:
    """Links from one rank to another, one a row."""

    source: Ints  # global ranks
    destination: Ints
    across_nodes: Bools
    slowness: Floats  # times the median of transfers of the same size
    high_slowness: Floats  # the same of its slowest seventh: a link may be slow now and then
    past_slowness: Floats  # its times over those when it was fast; 1 where it always was
    operations: Ints
    busy_ns: Floats  # sum of the times of its transfers
    waits_ns: dict[str, Floats]


# ---- transfers ----
def proxy_step_transfers(run: Run) -> Transfers | None:
    """Sends of the network proxies, from when the network had them until they were done. None
    where no proxy step is on record.
    """
    if not any("full" in (row.mode, row.fullest_mode) for row in run.model.processes):
        return None
    parts = []
    from ncclscope.model.detail_tables import details_of  # decodes: most captures have no steps

    for columns in details_of(run.model, "proxy_steps"):
        is_send = (columns["form"] == SEND) & (columns["operation"] != NONE)
        is_send &= (columns["end_ns"] != NONE) & (columns["network_since_ns"] != NONE)
        rows = np.flatnonzero(is_send & (columns["peer"] != NONE))
        if len(rows):
            parts.append({n: np.asarray(v)[rows].astype(np.int64) for n, v in columns.items()})
    if not parts:
        return None
    steps = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    operation = steps["operation"]
    source = run.column("global_rank", operation)
    destination = _global_ranks(run, run.column("communicator", operation), steps["peer"])
    network_since = steps["network_since_ns"]
    peer_since = np.where(steps["peer_since_ns"] != NONE, steps["peer_since_ns"], network_since)
    gpu_since = np.where(steps["gpu_since_ns"] != NONE, steps["gpu_since_ns"], peer_since)
    time = (steps["end_ns"] - network_since).astype(np.float64)
    waits = {
        "gpu": np.maximum(peer_since - gpu_since, 0).astype(np.float64),
        "peer": np.maximum(network_since - peer_since, 0).astype(np.float64),
        "network": np.maximum(time, 0),
    }
    fine = (source != NONE) & (destination != NONE) & run.current[operation]
    return Transfers(
        source[fine],
        destination[fine],
        operation[fine],
        np.floor(np.log2(np.maximum(steps["size_bytes"][fine], 1))).astype(np.int64),
        time[fine],
        {name: values[fine] for name, values in waits.items()},
        np.ones(int(fine.sum()), bool),
    )


def p2p_transfers(waiting: Waiting) -> Transfers:
    """Sends whose receive is on record. A kernel of sends and receives waits for all of its peers
    and ends as a whole: from the last start that it waited for, it only moves data. Where both
    ends send, the shorter of both is what the transfer between them can have taken at most. It is
    what it took where one of both started last: such transfers count where a link has some. Where
    the clocks of both hosts disagree by more than a transfer takes, it seems to take no time: such
    transfers are left out, because nothing can be compared with them.
    """
    kernels = waiting.kernels
    moving = waiting.dependencies.length_ns[2::3]
    own = np.repeat(np.arange(len(kernels)), np.diff(kernels.partner_first))
    sends = np.zeros(len(kernels), bool)
    sends[own[~kernels.partner_sends]] = True
    pairs = kernels.partner_sends & kernels.pair[own]
    receiver, sender = own[pairs], kernels.partner[pairs].astype(np.int64)
    # The stop stamp of a kernel that only receives comes early.
    by_sender = ~sends[receiver] | (moving[sender] <= moving[receiver])
    kernel = np.where(by_sender, sender, receiver)
    time = moving[kernel].astype(np.float64)
    last = waiting.arrivals.last[kernel]
    shown = time > 0
    receiver, sender, time, last = receiver[shown], sender[shown], time[shown], last[shown]
    known = (last == sender) | (last == receiver)
    kinds = int(kernels.transfer_kind.max(initial=0)) + 1
    kind = kernels.transfer_kind[sender].astype(np.int64) * kinds + kernels.transfer_kind[receiver]
    return Transfers(
        kernels.ranks[kernels.rank[sender]],
        kernels.ranks[kernels.rank[receiver]],
        sender,
        kind << 1 | known,
        time,
        {},
        _where_known(sender, receiver, known, kernels),
    )


def _where_known(sender: Ints, receiver: Ints, known: Bools, kernels: Kernels) -> Bools:
    """By transfer whether it is `known`; all of a link where few are. Where a third rank started
    last, what is left after that start may be less than the transfer took, or more, where that
    rank's own is longer: such transfers are of a kind of their own.
    """
    source, destination = (kernels.rank[rows].astype(np.int64) for rows in (sender, receiver))
    link, links = factorize(source << _RANK_BITS | destination)
    count = np.bincount(link[known], minlength=links)
    return np.asarray(known | (count[link] < _FEW_KNOWN))


def _global_ranks(run: Run, communicator: Ints, rank: Ints) -> Ints:
    """Ranks of communicators as ranks of the job; NONE where they are not on record."""
    members = run.model.tables["members"]
    columns = (members[name].tolist() for name in ("communicator", "rank", "global_rank"))
    global_rank = {
        comm << _RANK_BITS | place: job for comm, place, job in zip(*columns, strict=True)
    }
    keys, inverse = np.unique(communicator << _RANK_BITS | rank & _RANK_MASK, return_inverse=True)
    known = [global_rank.get(key, NONE) for key in keys.tolist()]
    return np.asarray(np.array(known, np.int64)[inverse.reshape(-1)])


# ---- links ----
def link_times(transfers: Transfers, node_of: Ints) -> Links:
    """Each link against the median of transfers of its size, within and between nodes apart.

    Of each operation the median counts, then the median over operations. Of two in the middle it
    is the shorter: a slow link slows every transfer, a busy host only some.
    """
    key = transfers.source << _RANK_BITS | transfers.destination
    relative, rows = _relative_times(transfers, key, node_of), np.flatnonzero(transfers.counts)
    transfers, key = _of_rows(transfers, rows), key[rows]
    link, (slowness, high), count = _by_link(transfers, key, relative[rows], (0.5, _HIGH))
    place = np.searchsorted(link, key)

    def total(values: Floats) -> Floats:
        return np.bincount(place, values, minlength=len(link)).astype(np.float64)

    busy_ns, fast_ns = total(transfers.time_ns), total(_fast_ns(transfers, key))
    past = busy_ns / np.maximum(fast_ns, 1.0)
    source, destination = link >> _RANK_BITS, link & _RANK_MASK
    return Links(
        source,
        destination,
        node_of[source] != node_of[destination],
        slowness,
        high,
        past,
        count,
        busy_ns,
        {name: total(values) for name, values in transfers.waits_ns.items()},
    )


def _of_rows(transfers: Transfers, rows: Ints) -> Transfers:
    if len(rows) == len(transfers.source):
        return transfers
    return Transfers(
        transfers.source[rows],
        transfers.destination[rows],
        transfers.operation[rows],
        transfers.kind[rows],
        transfers.time_ns[rows],
        {name: values[rows] for name, values in transfers.waits_ns.items()},
        transfers.counts[rows],
    )


def _by_link(
    transfers: Transfers, key: Ints, values: Floats, quantiles: tuple[float, ...]
) -> tuple[Ints, list[Floats], Ints]:
    """By link its key, quantiles over its operations of their medians, and how many there are."""
    order = np.lexsort((values, transfers.operation, key))
    both = np.stack([key[order], transfers.operation[order]])
    start = np.flatnonzero(np.concatenate([[True], (np.diff(both, axis=1) != 0).any(axis=0)]))
    size = np.diff(np.append(start, len(order)))
    typical, link_of = values[order][start + (size - 1) // 2], key[order][start]
    order = np.lexsort((typical, link_of))
    link, first, count = np.unique(link_of[order], return_index=True, return_counts=True)
    shown = [typical[order][first + (share * count).astype(np.int64)] for share in quantiles]
    return link, shown, count


def _fast_ns(transfers: Transfers, key: Ints) -> Floats:
    """By transfer what those of the same kind took on the same link when it was fast; its own time
    where it was never much faster. Times are summed up, and not their ratios: of a small transfer
    next to large ones the error of clocks may be several times its time.
    """
    both = np.stack([key, transfers.kind])
    _, kind = np.unique(both, axis=1, return_inverse=True)
    kind, rows = kind.reshape(-1).astype(np.int64), np.arange(len(key))
    time_ns = transfers.time_ns.astype(np.int64)
    # Operations of a rank are numbered in the order of time.
    good = own_past(kind, np.zeros_like(kind), time_ns, transfers.operation, rows)[0][kind]
    return np.where(np.isnan(good), transfers.time_ns, good)


def _relative_times(transfers: Transfers, key: Ints, node_of: Ints) -> Floats:
    """Times over those of the usual link for transfers of the same kind, within or between nodes.
    Of two links in the middle it is the faster one, so that of two links one can be slow.
    """
    across = node_of[transfers.source] != node_of[transfers.destination]
    kinds, kind = np.unique(transfers.kind << 1 | across, return_inverse=True)
    kind = kind.reshape(-1).astype(np.int64)
    time_ns = transfers.time_ns.astype(np.int64)
    link = np.unique(key, return_inverse=True)[1].reshape(-1).astype(np.int64)
    table = member_quantiles(kind, len(kinds), link, time_ns, (0.5,))
    usual = table.of_usual_member(0, len(kinds))
    return np.asarray(transfers.time_ns / np.maximum(usual[kind], 1.0))
