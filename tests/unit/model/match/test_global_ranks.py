"""The rank in the job of each rank that a process has in its communicators."""

from ncclscope.model.match.global_ranks import LocalRank, global_ranks, lowest_known
from ncclscope.model.schema import NONE


def launched(rank: int, world: int) -> dict[str, str]:
    """What a process recorded of its launcher."""
    return {"env.RANK": str(rank), "env.WORLD_SIZE": str(world)}


def test_the_widest_communicator_counts() -> None:
    ranks = [LocalRank(0, "gpu", 1, 2), LocalRank(1, "gpu", 6, 8), LocalRank(2, "gpu", 0, 4)]
    assert global_ranks(ranks, {}) == {0: 6, 1: 6, 2: 6}
    assert global_ranks(ranks, launched(5, 8)) == {0: 6, 1: 6, 2: 6}


def test_of_equally_wide_ones_the_first_counts() -> None:
    assert global_ranks([LocalRank(4, "gpu", 1, 2), LocalRank(3, "gpu", 0, 2)], {})[4] == 0


def test_a_launcher_that_counts_more_ranks_knows_better() -> None:
    ranks = [LocalRank(0, "gpu", 1, 4), LocalRank(1, "gpu", 0, 2)]
    assert global_ranks(ranks, launched(5, 8)) == {0: 5, 1: 5}


def test_a_launchers_rank_is_not_that_of_several_gpus() -> None:
    ranks = [LocalRank(0, "a", 2, 4), LocalRank(1, "b", 3, 4), LocalRank(2, "b", 1, 2)]
    assert global_ranks(ranks, launched(1, 8)) == {0: 2, 1: 3, 2: 3}


def test_ranks_of_one_communicator_that_differ_are_different_ranks() -> None:
    """Two ranks of one process share a GPU, or nothing tells which GPU they have."""
    world = [LocalRank(0, "", 0, 2, id=7), LocalRank(1, "", 1, 2, id=7)]
    assert global_ranks(world, {}) == {0: 0, 1: 1}
    again = [LocalRank(2, "", 1, 2, id=8), LocalRank(3, "", 0, 2, id=8)]
    assert global_ranks([*world, *again], {}) == {0: 0, 1: 1, 2: 1, 3: 0}
    wider = [LocalRank(0, "gpu", 2, 4, id=7), LocalRank(1, "gpu", 3, 4, id=7)]
    parts = [LocalRank(2, "gpu", 1, 2, id=8), LocalRank(3, "gpu", 1, 2, id=9)]
    assert global_ranks([*wider, *parts], launched(1, 2)) == {0: 2, 1: 3, 2: 2, 3: 3}


def test_ranks_that_the_interface_does_not_tell() -> None:
    unknown = [LocalRank(0, "gpu", NONE, 0)]
    assert global_ranks(unknown, {}) == {0: NONE}
    assert global_ranks(unknown, launched(3, 4)) == {0: 3}
    assert global_ranks([*unknown, LocalRank(1, "gpu", 2, 0)], {}) == {0: 2, 1: 2}


def test_a_process_is_named_by_its_lowest_rank() -> None:
    assert lowest_known([3, NONE, 2], launched(9, 16)) == 2
    assert lowest_known([NONE], launched(9, 16)) == 9
    assert lowest_known([], {}) == NONE
