"""The bus bandwidth that collectives reach on the wire, once all their ranks have arrived."""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.distinct import distinct_rows
from ncclscope.analysis.run import Run
from ncclscope.nccl.bandwidth import bus_factor

_LEAST_OPERATIONS = 5


@dataclass(frozen=True, slots=True)
class WireBandwidth:
    """What a communicator reaches with one function and size."""

    function: str
    size_bytes: int
    communicator: int
    ranks: int
    busbw_gbs: float  # of the median operation
    wire_ns: float  # time on the wire of all operations, on the average rank


def wire_bandwidths(run: Run) -> tuple[WireBandwidth, ...]:
    """By function, size and communicator, where some operations have a time on the wire."""
    operations, ranks = run.operations, run.model.tables["communicators"]["ranks"]
    on_wire = (operations["wire_ns"] > 0) & (operations["size_bytes"] > 0)
    rows = np.flatnonzero(run.collective & on_wire)
    names = ("function", "size_bytes", "communicator")
    kinds, kind = distinct_rows([run.column(name, rows) for name in names])
    order = np.argsort(kind, kind="stable")
    wire = run.column("wire_ns", rows)[order].astype(np.float64)
    edges = np.searchsorted(kind[order], np.arange(len(kinds) + 1))
    bandwidths = []
    for place, (code, size_bytes, communicator) in enumerate(kinds.tolist()):
        function, times = run.word("function", code), wire[edges[place] : edges[place + 1]]
        factor = bus_factor(function, int(ranks[communicator]))
        if factor is None or len(times) < _LEAST_OPERATIONS:
            continue
        members = max(len(run.ranks_of(communicator)), 1)
        bandwidths.append(
            WireBandwidth(
                function,
                size_bytes,
                communicator,
                int(ranks[communicator]),
                size_bytes * factor / float(np.median(times)),
                float(times.sum()) / members,
            )
        )
    return tuple(bandwidths)
