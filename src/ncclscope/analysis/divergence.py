"""Where ranks called different things as the same operation of a communicator."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.run import Run
from ncclscope.arrays.types import Ints
from ncclscope.model.schema import COLLECTIVE, IN_FLIGHT, NONE
from ncclscope.nccl.functions import WITH_ROOT

_NEAR = 8  # calls in which a swapped one is looked for


@dataclass(frozen=True, slots=True)
class RankCall:
    """What one rank called."""

    function: str
    size_bytes: int  # NONE where it is not known
    datatype: str
    root: int  # NONE where the function has none


@dataclass(frozen=True, slots=True)
class Side:
    """Ranks that called the same."""

    call: RankCall
    ranks: tuple[int, ...]  # global, in order


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first operation of a communicator on which its ranks disagree."""

    communicator: int
    number: int  # of the operation on its communicator, from 1
    operations: int  # on which ranks disagree
    kind: str  # function, datatype, size, root or order: what differs
    sides: tuple[Side, ...]  # the largest first
    in_flight: bool  # some rank is still in it

    @property
    def minority(self) -> tuple[int, ...]:
        """Ranks that did not call what most did; none where two sides are equally large."""
        if len(self.sides[0].ranks) == len(self.sides[1].ranks):
            return ()
        return tuple(sorted(rank for side in self.sides[1:] for rank in side.ranks))


def divergences(run: Run, most: int) -> tuple[Divergence, ...]:
    """The first divergence of each communicator, of at most `most` of them."""
    instances = run.model.tables["instances"]
    wrong = np.flatnonzero((instances["mismatch"] == 1) & (instances["form"] == COLLECTIVE))
    wrong = np.union1d(wrong, _with_different_roots(run))
    communicator = np.asarray(instances["communicator"], np.int64)[wrong]
    order = np.asarray(instances["call_order"], np.int64)[wrong]
    first_divergences = []
    for row in np.unique(communicator)[:most].tolist():
        own = wrong[communicator == row]
        first = int(own[np.argmin(order[communicator == row])])
        divergence = _divergence(run, row, first, len(own))
        if divergence is not None:
            first_divergences.append(divergence)
    return tuple(first_divergences)


def _with_different_roots(run: Run) -> Ints:
    """Instances whose ranks gave different roots."""
    operations, functions = run.operations, run.model.words["function"]
    codes = [code for code, name in enumerate(functions) if name in WITH_ROOT]
    rooted = run.collective & np.isin(operations["function"], codes)
    rows = np.flatnonzero(rooted & (operations["instance"] != NONE) & (operations["root"] != NONE))
    if not len(rows):
        return rows
    instance = run.column("instance", rows)
    order = np.argsort(instance, kind="stable")
    number, first = np.unique(instance[order], return_index=True)
    root = run.column("root", rows[order])
    differ = np.maximum.reduceat(root, first) != np.minimum.reduceat(root, first)
    return np.asarray(number[differ])


def _call(run: Run, row: int) -> RankCall:
    operations = run.operations
    function = run.word("function", int(operations["function"][row]))
    return RankCall(
        function,
        int(operations["size_bytes"][row]),
        run.word("datatype", int(operations["datatype"][row])),
        int(operations["root"][row]) if function in WITH_ROOT else NONE,
    )


def _divergence(run: Run, communicator: int, instance: int, times: int) -> Divergence | None:
    operations = run.operations
    rows = np.flatnonzero((operations["instance"] == instance) & run.current)
    calls = {int(operations["global_rank"][row]): _call(run, row) for row in rows.tolist()}
    sides = tuple(
        Side(call, tuple(sorted(rank for rank, own in calls.items() if own == call)))
        for call, _ in Counter(calls.values()).most_common()
    )
    if len(sides) < 2:
        return None
    order = int(run.model.tables["instances"]["call_order"][instance])
    usual = sides[0].call
    odd_rank = min(rank for side in sides[1:] for rank in side.ranks)
    kind = _kind(run, communicator, order, usual, calls[odd_rank], odd_rank)
    in_flight = bool((operations["state"][rows] == IN_FLIGHT).any())
    return Divergence(communicator, order + 1, times, kind, sides, in_flight)


def _kind(
    run: Run, communicator: int, order: int, usual: RankCall, odd: RankCall, odd_rank: int
) -> str:
    """In what two calls differ; `order` where both sides make the other's call a little later."""
    operations = run.operations
    near = (operations["communicator"] == communicator) & run.collective
    near &= (operations["call_order"] > order) & (operations["call_order"] <= order + _NEAR)
    rows = np.flatnonzero(near)
    of_rank = operations["global_rank"][rows] == odd_rank
    later_odd = {_call(run, row) for row in rows[of_rank].tolist()}
    later_usual = {_call(run, row) for row in rows[~of_rank].tolist()}
    if usual in later_odd and odd in later_usual and usual.function != odd.function:
        return "order"
    for name in ("function", "datatype", "size", "root"):
        field = "size_bytes" if name == "size" else name
        if getattr(usual, field) != getattr(odd, field):
            return name
    return "function"
