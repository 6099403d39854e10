"""AlltoAll, Gather and Scatter of a simulated NCCL, which reports sends and receives: every rank's
side is shown as what it was, where that can be told.
"""

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ncclscope.model.build import open_model
from ncclscope.model.detail_tables import details_of_process
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE
from tests.support.rooted_job import ITERATIONS, RANKS, record_rooted

BLOCK_BYTES = 4096  # of one rank


@pytest.fixture(scope="module")
def rooted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gathers and Scatters with roots 0, 1, 2, 0; AllReduces, sends and AlltoAlls before."""
    capture = tmp_path_factory.mktemp("rooted") / "capture"
    record_rooted(capture)
    return capture


def without_rank(capture: Path, rank: int, tmp_path: Path) -> Model:
    """The model of a copy in which a rank left nothing."""
    copy = tmp_path / "copy"
    shutil.copytree(capture, copy, ignore=shutil.ignore_patterns("model"))
    folder = next(row.folder for row in open_model(capture).processes if row.global_rank == rank)
    shutil.rmtree(copy / folder)
    return open_model(copy)


def rows(model: Model, function: str, whole: bool = True) -> np.ndarray:
    """Rows of a function, parts of others or not."""
    operations = model.tables["operations"]
    codes = [n for n, name in enumerate(model.words["function"]) if name == function]
    own = np.isin(operations["function"], codes)
    return np.flatnonzero(own & ((operations["part_of"] == NONE) == whole))


@pytest.mark.parametrize("function", ["Gather", "Scatter"])
def test_every_rank_has_it(rooted: Path, function: str) -> None:
    model = open_model(rooted)
    operations, instances = model.tables["operations"], model.tables["instances"]
    own = rows(model, function)
    assert Counter(operations["rank"][own].tolist()) == dict.fromkeys(range(RANKS), ITERATIONS)
    assert (operations["inferred"][own] == 1).all()
    assert (operations["form"][own] == 0).all()
    assert (operations["size_bytes"][own] == RANKS * BLOCK_BYTES).all()
    timed = own[operations["start_ns"][own] != NONE]
    assert (operations["start_ns"][timed] > operations["call_ns"][timed]).all()
    assert (operations["peer"][own] == NONE).all()
    for rank in range(RANKS):
        of_rank = own[operations["rank"][own] == rank]
        assert sorted(operations["root"][of_rank].tolist()) == [0, 0, 1, 2]
        in_time = of_rank[np.argsort(operations["call_ns"][of_rank])]
        assert operations["root"][in_time].tolist() == [0, 1, 2, 0]
    numbers = set(operations["instance"][own].tolist())
    assert len(numbers) == ITERATIONS
    for number in numbers:
        together = own[operations["instance"][own] == number]
        assert instances["ranks_seen"][number] == instances["ranks_expected"][number] == RANKS
        assert len(set(operations["root"][together].tolist())) == 1
        assert instances["function"][number] == operations["function"][own[0]]
    assert model.completeness.is_complete
    assert model.completeness.mismatched_instances == 0


def test_calls_are_counted_once(rooted: Path) -> None:
    """15 × 4 collectives, 4 × 2 sends and receives, 4 of each of the three, on every rank."""
    model = open_model(rooted)
    assert model.completeness.calls == RANKS * ITERATIONS * (15 + 2 + 3)
    operations = model.tables["operations"]
    for name in ("Send", "Recv"):
        alone = rows(model, name)
        assert len(alone) == RANKS * ITERATIONS
        assert (operations["size_bytes"][alone] == 4 * 4096).all()


def test_inferred_ones_do_not_meet_other_calls(rooted: Path) -> None:
    """The first AlltoAll is not the same instance as the first AllReduce."""
    model = open_model(rooted)
    operations = model.tables["operations"]
    known = operations["instance"] != NONE
    both = {*zip(operations["instance"][known], operations["function"][known], strict=True)}
    names = [model.words["function"][function] for _, function in both]
    pairs = sum(name in ("Send", "Recv") for name in names)
    assert len(both) - pairs // 2 == len({instance for instance, _ in both})


def test_without_the_root_they_are_sends_and_receives(rooted: Path, tmp_path: Path) -> None:
    """Rank 1 was the root of one Gather and one Scatter in four."""
    model = without_rank(rooted, 1, tmp_path)
    operations = model.tables["operations"]
    for function, side in (("Gather", "Send"), ("Scatter", "Recv")):
        own = rows(model, function)
        assert len(own) == (RANKS - 1) * (ITERATIONS - 1)
        assert 1 not in operations["root"][own]
        alone = rows(model, side)
        alone = alone[operations["size_bytes"][alone] == BLOCK_BYTES]
        assert operations["peer"][alone].tolist() == [1, 1]  # one on each of the others
        assert operations["rank"][alone].tolist() == [0, 2]
    assert not model.completeness.is_complete


def test_all_to_all_without_one_rank(rooted: Path, tmp_path: Path) -> None:
    model = without_rank(rooted, 2, tmp_path)
    operations, instances = model.tables["operations"], model.tables["instances"]
    own = rows(model, "AlltoAll")
    assert Counter(operations["rank"][own].tolist()) == {0: ITERATIONS, 1: ITERATIONS}
    assert (operations["size_bytes"][own] == RANKS * 4 * 4096).all()
    of_them = np.unique(operations["instance"][own])
    assert len(of_them) == ITERATIONS
    assert (instances["ranks_seen"][of_them] == 2).all()
    assert (instances["ranks_expected"][of_them] == 3).all()
    # Of the missing rank: 15 collectives, a send and a receive, and the AlltoAll, 4 times; 3 Gathers
    # and Scatters; of the one of each whose root it was, what the other two sent and received.
    assert model.completeness.missing_operations == ITERATIONS * (15 + 2 + 1) + 2 * 3 + 2 * 2


def test_a_group_of_ones_own_stays_what_it_is(tmp_path: Path) -> None:
    """The root's side looks like a Gather's; the others' show that it was none."""
    record_rooted(tmp_path / "capture", ["like_gather"])
    model = open_model(tmp_path / "capture")
    operations = model.tables["operations"]
    own = rows(model, "Gather")
    assert (operations["rank"][own] == 0).all()
    assert (operations["instance"][own] == NONE).all()
    sends = rows(model, "Send")
    assert Counter(operations["rank"][sends].tolist()) == {1: ITERATIONS, 2: 2 * ITERATIONS}
    assert model.completeness.missing_operations == 0
    assert model.completeness.mismatched_instances == 0


def test_channels_find_their_operation(rooted: Path) -> None:
    """Also those of a send that was turned into a Gather."""
    model = open_model(rooted)
    operations = model.tables["operations"]
    for number in range(RANKS):
        channels = details_of_process(model, "channels", number)
        assert (channels["operation"] != NONE).all()
        turned = rows(model, "Gather")
        turned = turned[operations["process"][turned] == number]
        turned = turned[operations["root"][turned] != operations["rank"][turned]]
        assert np.isin(turned, channels["operation"]).all()
