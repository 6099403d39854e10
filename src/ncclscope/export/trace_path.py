"""The critical path as a layer of a rank's timeline: the edges that run through this rank."""

import numpy as np

from ncclscope.analysis.waiting.path_edges import PathEdges, path_names
from ncclscope.arrays.types import Ints
from ncclscope.export.trace_model import Argument, Details, Layer, Rank
from ncclscope.humanize import printable
from ncclscope.model.model import Model

PATH_FLOW = (1 << 61) - 1  # one flow through all edges: a line from rank to rank
NO_PATH = "no critical path: fewer than two ranks have GPU times"


def path_layer(model: Model, rank: Rank, edges: PathEdges) -> Layer:
    """The edges of the path that are this rank's."""
    ops = model.tables["operations"]
    own = (np.asarray(ops["process"])[edges.operation] == rank.process) & (
        np.asarray(ops["global_rank"])[edges.operation] == rank.global_rank
    )
    rows = np.flatnonzero(own)
    names, name = path_names(model, edges)
    communicators = [printable(text) for text in model.communicator_names]

    def details(places: Ints) -> Details:
        some = rows[places]
        operation = edges.operation[some]
        communicator = np.asarray(ops["communicator"])[operation].astype(np.int64)
        arguments = [
            Argument("communicator", communicator, communicators),
            Argument("operation", operation, varies=True),
            Argument("excess_ns", edges.excess_ns[some], varies=True),
        ]
        return Details(name[some], arguments, [np.full(len(some), PATH_FLOW)])

    return Layer(
        rank, "critical path", [("", "critical path")], [printable(text) for text in names],
        np.zeros(len(rows), np.int64), edges.start_ns[rows], edges.end_ns[rows], details,
    )  # fmt: skip
