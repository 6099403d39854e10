"""Kernels of all ranks: operations with GPU times, in the order of rank and call.

Sends and receives of one group are one kernel, which waits for all of its peers and ends as a
whole. Which of them it waited for cannot be seen, so they are one row here.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.analysis.distinct import distinct_rows
from ncclscope.analysis.run import Run
from ncclscope.analysis.sampling import is_sampled
from ncclscope.analysis.waiting.communicator_classes import classes_and_roles
from ncclscope.analysis.waiting.exchange_partners import (
    is_elsewhere,
    partner_numbers,
    partner_ranks,
)
from ncclscope.analysis.waiting.kernel_kinds import kernel_kinds
from ncclscope.analysis.waiting.rooted_collectives import serves, wait_for_all
from ncclscope.arrays.joins import factorize
from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.model import Model
from ncclscope.model.schema import COLLECTIVE, GPU_SOURCES, NONE, RECV, SEND, SOURCES
from ncclscope.model.streams import rules_of
from ncclscope.nccl.functions import EVERYBODY, NOBODY, ROOT_FIRST, ROOT_LAST, waits_for

Numbers = npt.NDArray[np.int32]

# Sources whose starts are those of kernels; CUDA events around launches are a few µs early.
_HAS_START = np.array([*(name in GPU_SOURCES for name in SOURCES), False])  # by code; -1: none
# Groups of sends and receives that are one function: who waits follows from the function.
_OF_GROUPS = {"AlltoAll": EVERYBODY, "Gather": ROOT_LAST, "Scatter": ROOT_FIRST}
LEAST_TIMED = 0.8  # of all operations: fewer do not show what ranks did between them
_ODD = 0x1E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class Kernels:
    """One row a kernel.

    Events are numbered through: 3 * kernel is its call, + 1 its start, + 2 its end. A kernel of a
    meeting waits for all of the meeting's kernels, any kernel for those that `partners` lists.
    """

    row: Ints  # of `operations`; of a group, the first
    ranks: Ints  # global ranks, in order
    rank: Numbers  # place in `ranks`
    communicator: Ints
    communicator_class: Ints  # by row of `communicators`: those of one class are peers
    function: Ints  # code
    # Class of communicator, function and size; of sends and receives also whether the partner of
    # one is on another host.
    transfer_kind: Numbers
    # The same, with the partner of an exchange, and the place in a burst of calls:
    # exchange_partners.py, positions.with_burst_places.
    kind: Numbers
    pair: Bools  # of sends and receives
    serves: Bools  # of a root that has a role of its own: rooted_collectives.py
    stream: Numbers  # CUDA streams, numbered over all ranks
    launched_ns: Ints
    events_ns: Ints  # by kernel: call, start, end
    meeting: Numbers  # NONE: of no meeting
    partner_first: Ints  # kernel k's partners: from partner_first[k] to below partner_first[k + 1]
    partner: Numbers
    partner_sends: Bools  # by partner: this kernel receives from it, or is waited for by its root
    error_ns: Ints  # how far the clocks of the ranks that it meets may be apart
    unseen: dict[str, int]  # operations whose waiting cannot be seen, by reason
    timed_share: float  # of all operations

    def __len__(self) -> int:
        return len(self.row)

    @property
    def first_of_rank(self) -> Ints:
        """By rank its first kernel."""
        return np.searchsorted(self.rank, np.arange(len(self.ranks))).astype(np.int64)

    @property
    def call_number(self) -> Ints:
        """By kernel its number among its rank's."""
        return np.asarray(np.arange(len(self)) - self.first_of_rank[self.rank])


@dataclass(frozen=True, slots=True)
class _Columns:
    """Operations with GPU times."""

    row: Ints
    rank: Ints
    communicator: Ints
    form: Ints
    function: Ints
    size_bytes: Ints
    stream: Ints
    group: Ints
    instance: Ints
    call_ns: Ints
    launched_ns: Ints
    start_ns: Ints
    end_ns: Ints
    is_root: Bools

    def __len__(self) -> int:
        return len(self.row)


def without_peers(kernels: Kernels) -> Bools:
    """By communicator whether no other one of its class has collectives."""
    classes = kernels.communicator_class
    used = classes[np.unique(kernels.communicator[~kernels.pair])]
    return np.asarray(np.bincount(used, minlength=int(classes.max(initial=0)) + 1)[classes] < 2)


def is_sparse(model: Model, timed_share: float) -> bool:
    """Whether most operations have no times because others were chosen for the sample. Nothing then
    shows what ranks did between two timed ones.
    """
    return is_sampled(model) and timed_share < LEAST_TIMED


def kernels_of(run: Run, rows: Ints | None = None, own: Bools | None = None) -> Kernels | None:
    """The kernels of a run; None where fewer than two ranks have GPU times. `rows`: of these timed
    operations alone; `own`: by operation whether it counts where waiting cannot be seen.
    """
    columns = _columns(run, timed_rows(run) if rows is None else rows)
    ranks = np.flatnonzero(np.bincount(columns.rank))
    if len(ranks) < 2:
        return None
    kernel, first = _merge_groups(columns)
    meeting, partners = _meetings(run, columns, kernel, len(first))
    stream, _ = factorize(_stream_keys(columns)[first])
    classes, roles = classes_and_roles(run, columns.communicator, columns.rank)
    function = columns.form << 8 | columns.function
    shapes = tuple(of[columns.communicator] << 16 | function for of in (classes, roles))
    pair = _is_pair(columns.form)
    kinds = kernel_kinds(shapes[0], shapes[1], columns.size_bytes, pair, first)
    transfer_kind, kind = _with_partners(run, columns, first, pair, kinds) if pair.any() else kinds
    return Kernels(
        row=columns.row[first],
        ranks=ranks,
        rank=np.searchsorted(ranks, columns.rank[first]).astype(np.int32),
        communicator=columns.communicator[first],
        communicator_class=classes,
        function=columns.function[first],
        transfer_kind=transfer_kind,
        kind=kind,
        pair=pair[first],
        serves=_serves(run, columns, first),
        stream=stream,
        launched_ns=np.maximum.reduceat(columns.launched_ns, first),
        events_ns=np.stack(
            [
                np.minimum.reduceat(columns.call_ns, first),
                np.minimum.reduceat(columns.start_ns, first),
                np.maximum.reduceat(columns.end_ns, first),
            ],
            axis=1,
        ),
        meeting=meeting,
        partner_first=partners[0],
        partner=partners[1],
        partner_sends=partners[2],
        error_ns=_errors(run, columns, first),
        unseen=(untimed_of(int(run.current.sum()), len(columns)) if rows is None else {})
        | _unseen(columns, meeting[kernel], partners[0], kernel, own),
        timed_share=len(columns) / max(int(run.current.sum()), 1),
    )


def _serves(run: Run, columns: _Columns, first: Ints) -> Bools:
    rules = np.array([waits_for(name) for name in run.model.words["function"]], np.int64)
    rule = np.where(columns.form == COLLECTIVE, rules[columns.function], NOBODY)[first]
    ends = columns.rank[first], columns.communicator[first]
    return serves(*ends, rule, columns.is_root[first])


def _is_pair(form: Ints) -> Bools:
    return np.asarray((form == SEND) | (form == RECV))


def is_timed(run: Run) -> Bools:
    """By operation whether it has a start and an end by the GPU."""
    table = run.operations
    known = run.timed & _HAS_START[table["source"]]
    known &= np.asarray(table["global_rank"]) != NONE
    known &= np.asarray(table["communicator"]) != NONE  # of damaged captures
    return np.asarray(known)


def timed_rows(run: Run) -> Ints:
    """Operations with starts and ends by the GPU."""
    return np.flatnonzero(is_timed(run))


def _columns(run: Run, rows: Ints) -> _Columns:
    """These operations by rank and call; kernels lie together."""
    start, end = run.column("start_ns", rows), run.column("end_ns", rows)
    # In place where few are missing: each of these is as long as the run.
    launched = run.column("launch_end_ns", rows)
    missing = np.flatnonzero(launched == NONE)
    launched[missing] = run.column("launch_ns", rows[missing])
    call = run.column("call_ns", rows)
    # Replays of graphs are not called: they begin when something launched the graph.
    missing = np.flatnonzero(call == NONE)
    began = launched[missing]
    call[missing] = np.where(began == NONE, start[missing], began)
    np.minimum(call, start, out=call)
    missing = np.flatnonzero(launched == NONE)
    launched[missing] = call[missing]
    np.clip(launched, call, start, out=launched)
    rank = run.column("global_rank", rows)
    communicator, group = run.column("communicator", rows), run.column("group_call", rows)
    form = run.column("form", rows)
    group[~_is_pair(form)] = NONE
    # Calls of a group follow each other; its kernels come in the order of their first call.
    first_call = _first_call(rank, communicator, group, call)
    if not _are_in_order(rank, first_call, call):
        order = call_order(rank, first_call, call)
        rows, group, call, launched = rows[order], group[order], call[order], launched[order]
        start, end, rank = start[order], end[order], rank[order]
        communicator, form = communicator[order], form[order]

    def column(name: str) -> Ints:
        return run.column(name, rows)

    return _Columns(
        row=rows,
        rank=rank,
        communicator=communicator,
        form=form,
        function=column("function"),
        size_bytes=column("size_bytes"),
        stream=column("stream"),
        group=group,
        instance=column("instance"),
        call_ns=call,
        launched_ns=launched,
        start_ns=start,
        end_ns=end,
        is_root=column("root") == column("rank"),
    )


def _are_in_order(*keys: Ints) -> bool:
    """Whether rows are in the order of these keys, the first one before the others."""
    tied = np.ones(max(len(keys[0]) - 1, 0), bool)
    for key in keys:
        step = np.diff(key)
        if ((step < 0) & tied).any():
            return False
        tied &= step == 0
    return True


def call_order(rank: Ints, first_call: Ints, call: Ints) -> Ints:
    """Rows by rank, first call and call. Processes are read one after the other, in their order of
    calls: then their ranks are sorted, which is far less than their rows.
    """
    first = np.flatnonzero(np.diff(rank, prepend=-1))
    ranks = rank[first]
    numbers = np.repeat(np.arange(len(first)), np.diff(first, append=len(rank)))
    if len(np.unique(ranks)) < len(ranks) or not _are_in_order(numbers, first_call, call):
        return np.lexsort((call, first_call, rank))
    by_rank = np.argsort(ranks)
    count = np.diff(first, append=len(rank))[by_rank]
    shift = first[by_rank] - (np.cumsum(count) - count)  # of the rows of each rank
    return np.asarray(np.arange(len(rank)) + np.repeat(shift, count))


def _first_call(rank: Ints, communicator: Ints, group: Ints, call_ns: Ints) -> Ints:
    """By operation the first call of its group, in a number that no other group has."""
    first = call_ns.astype(np.int64) * 2
    grouped = np.flatnonzero(group != NONE)
    if len(grouped):
        place = distinct_rows([values[grouped] for values in (rank, communicator, group)])[1]
        number, count = factorize(place)
        least = np.full(count, np.iinfo(np.int64).max)
        np.minimum.at(least, number, call_ns[grouped])
        first[grouped] = least[number] * 2 + 1
    return first


def _merge_groups(columns: _Columns) -> tuple[Numbers, Ints]:
    """By operation its kernel; by kernel its first operation."""
    new = np.ones(len(columns), bool)
    same = columns.group[1:] != NONE
    for values in (columns.rank, columns.communicator, columns.group):
        same &= values[1:] == values[:-1]
    new[1:] = ~same
    first = np.flatnonzero(new)
    return (np.cumsum(new) - 1).astype(np.int32), first


def _stream_keys(columns: _Columns) -> Ints:
    """By operation a number for its rank's CUDA stream; its communicator where none is known."""
    own = np.where(columns.stream > 0, columns.stream, -2 - columns.communicator)
    return (own * _ODD + columns.rank * 0x85EBCA6B) & np.iinfo(np.int64).max


def _with_partners(
    run: Run, columns: _Columns, first: Ints, pair: Bools, kinds: tuple[Numbers, Numbers]
) -> tuple[Numbers, Numbers]:
    """Kinds of transfers that tell those between hosts apart, and kinds of calls that tell
    exchanges with different partners apart.
    """
    transfer, call = (values.astype(np.int64) for values in kinds)
    partner = np.full(len(columns), NONE, np.int64)
    partner[pair] = partner_ranks(run, columns.row[pair])
    across = np.logical_or.reduceat(is_elsewhere(run, columns.rank, partner), first)
    number = partner_numbers(columns.rank, partner, first)
    return (
        factorize(2 * transfer + across)[0],
        factorize(call * (int(number.max()) + 1) + number)[0],
    )


def _errors(run: Run, columns: _Columns, first: Ints) -> Ints:
    matched = np.flatnonzero(columns.instance != NONE)
    errors = np.zeros(len(columns), np.int64)
    own = np.asarray(run.model.tables["instances"]["error_ns"])[columns.instance[matched]]
    errors[matched] = np.maximum(own, 0)
    return np.maximum.reduceat(errors, first)


# ---- who waits for whom ----
def _meets(run: Run, columns: _Columns) -> Ints:
    """By operation who waits for whom in it, where its instance can be followed."""
    words, instances = run.model.words, run.model.tables["instances"]
    meets = rules_of(words["function"], words["algorithm"]).meets.astype(np.int64)
    for name, rule in _OF_GROUPS.items():
        if name in words["function"]:
            meets[words["function"].index(name)] = rule
    # Instances are those of the whole run: of a window, only its own are looked at.
    chosen = np.flatnonzero((columns.form == COLLECTIVE) & (columns.instance != NONE))
    own = columns.instance[chosen]
    followed = np.asarray(instances["error_ns"])[own] != NONE
    followed &= np.asarray(instances["mismatch"])[own] != 1
    chosen = chosen[followed]
    found = np.full(len(columns), NOBODY, np.int64)
    found[chosen] = meets[columns.function[chosen]]
    rooted = np.flatnonzero((found == ROOT_FIRST) | (found == ROOT_LAST))
    if len(rooted):
        group = columns.communicator[rooted] << 8 | columns.function[rooted]
        awaited = (found[rooted] == ROOT_FIRST) & columns.is_root[rooted]
        all_wait = wait_for_all(
            group, columns.size_bytes[rooted], columns.instance[rooted], columns.start_ns[rooted],
            columns.end_ns[rooted], awaited,
        )  # fmt: skip
        found[rooted[all_wait]] = EVERYBODY
    return found


def _meetings(
    run: Run, columns: _Columns, kernel: Numbers, kernels: int
) -> tuple[Numbers, tuple[Ints, Numbers, Bools]]:
    """By kernel its meeting, and its partners."""
    meets = _meets(run, columns)
    meeting = np.full(kernels, NONE, np.int32)
    everybody = np.flatnonzero(meets == EVERYBODY)
    meeting[kernel[everybody]] = factorize(columns.instance[everybody])[0]
    pairs = [_root_pairs(columns, meets), _send_pairs(columns)]
    own, other, sends = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    own, other = kernel[own], kernel[other]
    apart = own != other
    own, other, sends = own[apart], other[apart], sends[apart]
    order = np.argsort(own, kind="stable")
    first = np.searchsorted(own[order], np.arange(kernels + 1)).astype(np.int64)
    return meeting, (first, other[order].astype(np.int32), sends[order])


def _root_pairs(columns: _Columns, meets: Ints) -> tuple[Ints, Ints, Bools]:
    """Operations that wait for their root, and roots that wait for all others."""
    own, other = [], []
    for rule in (ROOT_FIRST, ROOT_LAST):
        rows = np.flatnonzero(meets == rule)
        if not len(rows):
            continue
        instance = columns.instance - int(columns.instance[rows].min())
        root_of = np.full(int(instance[rows].max()) + 1, NONE, np.int64)
        roots = rows[columns.is_root[rows]]
        root_of[instance[roots]] = roots
        rest = rows[~columns.is_root[rows]]
        root = root_of[instance[rest]]
        rest, root = rest[root != NONE], root[root != NONE]
        own.append(rest if rule == ROOT_FIRST else root)
        other.append(root if rule == ROOT_FIRST else rest)
    none = [np.empty(0, np.int64)]
    waiting, awaited = np.concatenate(own or none), np.concatenate(other or none)
    return waiting, awaited, np.ones(len(waiting), bool)


def _send_pairs(columns: _Columns) -> tuple[Ints, Ints, Bools]:
    """Receives with their sends, and sends with their receives."""
    rows = np.flatnonzero(_is_pair(columns.form) & (columns.instance != NONE))
    order = rows[np.lexsort((columns.form[rows], columns.instance[rows]))]
    one, two = order[:-1], order[1:]
    matched = columns.instance[one] == columns.instance[two]
    matched &= (columns.form[one] == SEND) & (columns.form[two] == RECV)
    send, receive = one[matched], two[matched]
    return (
        np.concatenate([receive, send]),
        np.concatenate([send, receive]),
        np.repeat([True, False], [len(receive), len(send)]),
    )


def untimed_of(current: int, timed: int) -> dict[str, int]:
    """Operations without GPU times, by reason; none where there are none. `current`: how many there
    are, `timed`: of these with GPU times.
    """
    untimed = current - timed
    return {"no start and end by the GPU": untimed} if untimed else {}


def _unseen(
    columns: _Columns, meeting: Numbers, partner_first: Ints, kernel: Numbers, own: Bools | None
) -> dict[str, int]:
    """Operations with GPU times whose waiting cannot be seen, by reason."""
    alone = (meeting == NONE) & (np.diff(partner_first)[kernel] == 0)
    if own is not None:
        alone &= own[columns.row]
    count = int(alone.sum())
    return {"no other rank's operation to compare with": count} if count else {}
