"""Exchanges of a rank are told apart by partner, where it has few."""

from pathlib import Path

import numpy as np
import pytest

import ncclscope
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.kernels import Kernels, kernels_of
from tests.support.laboratory.kinds import all_kinds

KINDS = all_kinds()


def kernels(capture: Path, name: str) -> Kernels:
    KINDS[name].write(capture, 1)
    made = kernels_of(Run(ncclscope.open(str(capture)).model))
    assert made is not None
    return made


def kinds_of_pairs(made: Kernels, rank: int) -> list[int]:
    own = (made.rank == rank) & made.pair
    return np.asarray(made.kind[own]).tolist()


def test_stages_tell_the_next_one_from_the_one_before(tmp_path: Path) -> None:
    """In the steady part of 1F1B a stage exchanges with both in turn, in calls that look alike."""
    made = kernels(tmp_path / "c", "pipeline 4 in groups x dp 3 on 3 hosts, healthy")
    own = (made.rank == 5) & made.pair  # its partners are both on other hosts
    assert len(set(made.kind[own].tolist())) == 2 * len(set(made.transfer_kind[own].tolist()))


def test_transfers_between_hosts_are_no_peers_of_those_within(tmp_path: Path) -> None:
    made = kernels(tmp_path / "c", "pipeline 4 in groups x dp 3 on 3 hosts, healthy")
    rows = np.flatnonzero(made.pair & (made.rank == 3))
    partner = made.partner[made.partner_first[rows]]
    within = made.rank[partner] == 0
    assert within.any()
    assert not within.all()
    assert set(made.transfer_kind[rows[within]]).isdisjoint(made.transfer_kind[rows[~within]])


def test_ranks_of_one_stage_have_the_same_kinds(tmp_path: Path) -> None:
    made = kernels(tmp_path / "c", "pipeline 4 in groups x dp 3 on 3 hosts, healthy")
    for first in (0, 3, 6, 9):
        assert kinds_of_pairs(made, first) == kinds_of_pairs(made, first + 1)


@pytest.mark.parametrize("name", ["ring 8, healthy", "experts 8, even, healthy"])
def test_exchanges_with_several_partners_stay_as_they_are(tmp_path: Path, name: str) -> None:
    made = kernels(tmp_path / "c", name)
    assert len(set(made.kind.tolist())) == len(set(made.transfer_kind.tolist()))
