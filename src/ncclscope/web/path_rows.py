"""The critical path as one row of bars, on the capture's one clock."""

from typing import Any

import numpy as np

from ncclscope.analysis.selection import Selection
from ncclscope.analysis.waiting.path_edges import PATH_KINDS, path_edges_of, path_names
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE
from ncclscope.web import palette
from ncclscope.web.bars import Bars, make_bars


def path_bars(model: Model) -> Bars | None:
    """A bar for each edge of the critical path; None where there is no path."""
    edges = path_edges_of(model, Selection())
    if edges is None or not len(edges):
        return None
    names, name = path_names(model, edges)
    codes = [palette.edge_code(text) for text in PATH_KINDS]
    codes += [palette.function_code(text) for text in names[len(PATH_KINDS) :]]
    return make_bars(
        {
            "start_ns": edges.start_ns,
            "end_ns": edges.end_ns,
            "wait_ns": np.empty(0, np.int64),
            "ref": edges.operation,
            "code": np.array(codes, np.uint8)[name],
            "look": np.zeros(len(edges), np.uint8),
        }
    )


def bar_of_path(model: Model, operation: int, code: int) -> dict[str, Any]:
    """Title and fields of an edge that leads to this operation."""
    operations = model.tables["operations"]
    rank, function = (int(operations[name][operation]) for name in ("global_rank", "function"))
    communicator = model.communicator_names[int(operations["communicator"][operation])]
    what = palette.colours()[code].name
    name = model.words["function"][function] if function != NONE else "?"
    to = "until the end of" if what == name else "before"
    return {
        "title": what if rank == NONE else f"rank {rank}: {what}",
        "communicator": communicator,
        "fields": [
            {"name": to, "value": f"{name} on {communicator}", "unit": "", "source": "derived"}
        ],
    }
