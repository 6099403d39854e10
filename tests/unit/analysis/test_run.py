"""What analyses share about a run."""

from ncclscope.analysis.run import Run
from ncclscope.model.schema import NONE
from tests.support.model_builders import model, operation, world


def test_ranks_that_are_members_of_nothing_have_no_node() -> None:
    rows = [operation(communicator=0, rank=rank, process=0, start_ns=1) for rank in (1, 5)]
    communicators = [{"id": 1, "name_inferred": 0, "ranks": 2, "nodes": 2}]
    run = Run(model(rows, [], communicators, ["world"], world(2, 1), nodes=2))
    assert run.node_of.tolist() == [0, 1, NONE, NONE, NONE, NONE, NONE]
