"""Counters of all processes, with rows of the capture's tables and with bytes."""

import numpy as np

from ncclscope.arrays.joins import take_small
from ncclscope.arrays.types import Ints
from ncclscope.model.process.counters import LARGEST
from ncclscope.model.process.decoded_process import DecodedProcess, Placement
from ncclscope.model.schema import COUNTER_HISTOGRAMS, COUNTERS, NONE, WORK_LEVEL, Column, Columns
from ncclscope.model.vocabulary import Vocabulary
from ncclscope.nccl.operation_bytes import bits_per_count


class CounterTable:
    """Rows of `counters` and `counter_histograms`. Grows process by process."""

    def __init__(self) -> None:
        self._counters: list[Columns] = []
        self._histograms: list[Columns] = []
        self._rows = 0

    def add(self, decoded: DecodedProcess, placement: Placement) -> None:
        """The counters of a process, with the capture's numbers in place of its own."""
        counters, histograms = decoded.counters.counters, decoded.counters.histograms
        if not counters:
            return
        rows = len(counters["calls"])
        last = len(placement.communicators) - 1  # stands for no communicator
        number = np.minimum(counters["communicator"], last)
        placed = {
            sort: take_small(codes, counters[sort])
            for sort, codes in placement.codes.items()
            if sort in counters
        }
        self._counters.append(
            counters
            | placed
            | {
                "process": np.full(rows, placement.process, np.int64),
                "communicator": placement.communicators[number],
                "rank": np.where(number < last, decoded.local.rank[number], NONE),
                "global_rank": np.where(number < last, placement.global_ranks[number], NONE),
            }
        )
        self._histograms.append(histograms | {"counter": histograms["counter"] + self._rows})
        self._rows += rows

    def tables(self, ranks: Ints, words: Vocabulary) -> tuple[Columns, Columns]:
        """The columns of both tables. `ranks`: how many each communicator has."""
        if not self._rows:
            return _joined(COUNTERS, []), _joined(COUNTER_HISTOGRAMS, [])
        counters = _joined(COUNTERS, self._counters)
        bits = _bits(counters, ranks, words)
        has_bytes = (counters["function"] != NONE) & (bits > 0)
        size = _bytes(counters["count"], bits)
        counters["size_bytes"] = np.where(has_bytes & (size < LARGEST), size, NONE)
        counters["bytes"] = np.where(bits > 0, _bytes(counters["bytes"], bits), NONE)
        return counters, _joined(COUNTER_HISTOGRAMS, self._histograms)


def _joined(columns: tuple[Column, ...], parts: list[Columns]) -> Columns:
    """Parts of a table as one; columns that no part has yet are NONE."""
    rows = sum(len(next(iter(part.values()))) for part in parts)
    return {
        column.name: np.concatenate(
            [np.empty(0, column.dtype), *(part[column.name] for part in parts)]
        ).astype(column.dtype)
        if all(column.name in part for part in parts)
        else np.full(rows, NONE, column.dtype)
        for column in columns
    }


def _bits(counters: Columns, ranks: Ints, words: Vocabulary) -> Ints:
    """Bits that one unit of each row's count stands for; 0 for an unknown datatype."""
    comm = counters["communicator"]
    of_row = np.where(comm != NONE, ranks[comm], 1) if len(ranks) else np.ones(len(comm), np.int64)
    names = ("function", "datatype", "level")
    keys = np.stack([*(counters[name].astype(np.int64) for name in names), of_row])
    kinds, place = np.unique(keys, axis=1, return_inverse=True)
    functions, datatypes = words.lists["function"], words.lists["datatype"]
    bits = [
        bits_per_count(
            "" if function == NONE else functions[function],
            "" if datatype == NONE else datatypes[datatype],
            count,
            in_coll=level == WORK_LEVEL,
        )
        for function, datatype, level, count in kinds.T.tolist()
    ]
    return np.array([one or 0 for one in bits], np.int64)[place.reshape(-1)]


def _bytes(counts: Ints, bits: Ints) -> Ints:
    """Bytes of that many units, rounded up; LARGEST where they are more."""
    fits = counts // 8 <= LARGEST // np.maximum(bits, 1) - 1
    some = np.where(fits, counts, 0)
    exact = some // 8 * bits + -(-(some % 8) * bits // 8)
    return np.where(fits, exact, LARGEST)
