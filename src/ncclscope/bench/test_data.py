"""Test data: what each rank sends, and what each must receive, element by element.

Values are small whole numbers, so that every datatype holds them and their sums exactly. They
repeat after a prime number of elements, so that data in the wrong place are noticed. The expected
output is computed for one period and repeated.
"""

from functools import lru_cache

import numpy as np

from ncclscope.bench.datatypes import Array, decode, encode
from ncclscope.bench.operations import BenchOperation, Shape, peers_of
from ncclscope.nccl.datatypes import Datatype

PERIOD = 4099
_RANK_STEP = 7919  # another prime: ranks differ in all elements
_Pieces = list[tuple[int, int, Array]]  # elements, where the period begins, the period's numbers


def _values(datatype: Datatype, reduction: str, rank: int, ranks: int) -> Array:
    """One period of a rank's data, as whole numbers."""
    element = np.arange(PERIOD, dtype=np.int64)
    place = element + rank * _RANK_STEP
    exact = datatype.largest_exact
    if reduction == "prod":  # at most three ranks have a 2, the others 1
        return 1 + ((element + rank) % ranks < min(ranks, 3)).astype(np.int64)
    if reduction in ("sum", "avg"):
        stride = -(-ranks // exact)  # if there are more ranks than exact numbers, some have 0
        largest = max(exact // ranks, 1)
        active = (element + rank) % stride == 0
        return np.where(active, (place * 31 + place // 7) % (min(largest, 100) + 1), 0)
    return (place * 31 + place // 7) % (min(exact, 100) + 1)


@lru_cache(maxsize=4)
def _reduced(datatype: Datatype, reduction: str, ranks: int) -> Array:
    """One period of all ranks' data reduced, as numbers."""
    result = _values(datatype, reduction, 0, ranks)
    combine = {"max": np.maximum, "min": np.minimum, "prod": np.multiply}.get(reduction, np.add)
    for rank in range(1, ranks):
        result = combine(result, _values(datatype, reduction, rank, ranks))
    if reduction == "avg":
        return result / ranks if datatype.is_float else result // ranks
    return result


def input_of(
    operation: BenchOperation, datatype: Datatype, reduction: str, rank: int, ranks: int
) -> Array:
    """One period of what a rank sends, as it is stored in memory."""
    reduction = reduction if operation.reduces else "none"
    return encode(datatype, _values(datatype, reduction, rank, ranks))


def expected_output(
    operation: BenchOperation,
    datatype: Datatype,
    reduction: str,
    root: int,
    rank: int,
    ranks: int,
    shape: Shape,
) -> _Pieces:
    """What a rank's receive buffer must contain, in pieces; [] if the rank receives nothing."""

    def sent_by(sender: int) -> Array:
        return _values(datatype, "none", sender, ranks)

    def whole(period: Array) -> _Pieces:
        return [(shape.receive, 0, period)]

    if operation.name == "allreduce":
        return whole(_reduced(datatype, reduction, ranks))
    if operation.name == "reduce":
        return whole(_reduced(datatype, reduction, ranks)) if rank == root else []
    if operation.name == "reducescatter":
        return [(shape.count, rank * shape.count, _reduced(datatype, reduction, ranks))]
    if operation.name == "broadcast":
        return whole(sent_by(root))
    if operation.name == "allgather" or (operation.name == "gather" and rank == root):
        return [(shape.count, 0, sent_by(sender)) for sender in range(ranks)]
    if operation.name == "gather":
        return []
    if operation.name == "alltoall":
        return [(shape.count, rank * shape.count, sent_by(sender)) for sender in range(ranks)]
    if operation.name == "scatter":
        return [(shape.count, rank * shape.count, sent_by(root))]
    return whole(sent_by(peers_of(operation, rank, ranks)[1]))


def repeat(period: Array, first: int, count: int) -> Array:
    """`count` elements of a period that repeats, from element `first` on."""
    return np.resize(np.roll(period, -(first % PERIOD)), count)


def wrong_elements(
    datatype: Datatype, reduction: str, ranks: int, received: Array, expected: Array
) -> int:
    """Number of elements that are wrong; rounding errors of an average are not."""
    numbers = decode(datatype, received)
    if reduction == "avg" and datatype.is_float:
        # NCCL multiplies before it adds: each rank's share is rounded, and each sum.
        tolerance = (np.abs(expected) + 1) * 2 * ranks / datatype.largest_exact
        return int(np.count_nonzero(~(np.abs(numbers - expected) <= tolerance)))
    return int(np.count_nonzero(numbers != expected))
