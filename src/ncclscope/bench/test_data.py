"""Data whose result is known: what each rank puts in, and what must come out, element by element.

Values are small whole numbers, so that every datatype holds them and their sums exactly. They
repeat after a prime number of elements: data that land a block too far are noticed. What must come
out is computed for one period and repeated.
"""

from functools import lru_cache

import numpy as np

from ncclscope.bench.datatypes import Array, Datatype
from ncclscope.bench.operations import Operation, Shape, pair_of

PERIOD = 4099
_SPREAD = 7919  # so that ranks differ everywhere


def _values(datatype: Datatype, reduction: str, rank: int, ranks: int) -> Array:
    """One period of a rank's data, as whole numbers."""
    element = np.arange(PERIOD, dtype=np.int64)
    place = element + rank * _SPREAD
    if reduction == "prod":  # at most three ranks have a 2, the others 1
        return 1 + ((element + rank) % ranks < min(ranks, 3)).astype(np.int64)
    if reduction in ("sum", "avg"):
        stride = -(-ranks // datatype.exact)  # more ranks than exact numbers: some put in nothing
        largest = max(datatype.exact // ranks, 1)
        active = (element + rank) % stride == 0
        return np.where(active, (place * 31 + place // 7) % (min(largest, 100) + 1), 0)
    return (place * 31 + place // 7) % (min(datatype.exact, 100) + 1)


@lru_cache(maxsize=4)
def reduced(datatype: Datatype, reduction: str, ranks: int) -> Array:
    """One period of what all ranks' data come to, as numbers."""
    found = _values(datatype, reduction, 0, ranks)
    combine = {"max": np.maximum, "min": np.minimum, "prod": np.multiply}.get(reduction, np.add)
    for rank in range(1, ranks):
        found = combine(found, _values(datatype, reduction, rank, ranks))
    if reduction == "avg":
        return found / ranks if datatype.is_float else found // ranks
    return found


def input_of(
    operation: Operation, datatype: Datatype, reduction: str, rank: int, ranks: int
) -> Array:
    """One period of what a rank sends, as it lies in memory."""
    kind = reduction if operation.reduces else "none"
    return datatype.encode(_values(datatype, kind, rank, ranks))


def expected_output(
    operation: Operation,
    datatype: Datatype,
    reduction: str,
    root: int,
    rank: int,
    ranks: int,
    shape: Shape,
) -> list[tuple[int, int, Array]]:
    """Pieces of a rank's receive buffer: elements, where the period begins, the period's numbers.

    Nothing where the rank receives nothing.
    """

    def of(sender: int) -> Array:
        return _values(datatype, "none", sender, ranks)

    def whole(period: Array) -> list[tuple[int, int, Array]]:
        return [(shape.receive, 0, period)]

    if operation.name == "allreduce":
        return whole(reduced(datatype, reduction, ranks))
    if operation.name == "reduce":
        return whole(reduced(datatype, reduction, ranks)) if rank == root else []
    if operation.name == "reducescatter":
        return [(shape.count, rank * shape.count, reduced(datatype, reduction, ranks))]
    if operation.name == "broadcast":
        return whole(of(root))
    if operation.name == "allgather" or (operation.name == "gather" and rank == root):
        return [(shape.count, 0, of(sender)) for sender in range(ranks)]
    if operation.name == "gather":
        return []
    if operation.name == "alltoall":
        return [(shape.count, rank * shape.count, of(sender)) for sender in range(ranks)]
    if operation.name == "scatter":
        return [(shape.count, rank * shape.count, of(root))]
    return whole(of(pair_of(operation, rank, ranks)[1]))


def repeated(period: Array, first: int, count: int) -> Array:
    """`count` elements of what repeats, from element `first` on."""
    return np.resize(np.roll(period, -(first % PERIOD)), count)


def wrong_elements(
    datatype: Datatype, reduction: str, ranks: int, found: Array, expected: Array
) -> int:
    """How many elements are not what they must be; an average may be rounded."""
    numbers = datatype.decode(found)
    if reduction == "avg" and datatype.is_float:
        # NCCL multiplies before it adds: each rank's share is rounded, and each sum.
        room = (np.abs(expected) + 1) * 2 * ranks / datatype.exact
        return int(np.count_nonzero(~(np.abs(numbers - expected) <= room)))
    return int(np.count_nonzero(numbers != expected))
