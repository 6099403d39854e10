"""How long exchanges of all ranks take, against those of equal groups."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ncclscope
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.exchange_groups import exchange_groups
from ncclscope.analysis.waiting.origins import Waiting, waiting_of
from ncclscope.analysis.waiting.what_if import Change, WhatIf
from tests.support.laboratory.events import Machine
from tests.support.laboratory.faults import Fault
from tests.support.laboratory.programs import Experts, experts_program
from tests.support.laboratory.shapes import link
from tests.support.laboratory.truth import Kind

GROUPS = Experts(12, steps=6, layers=1, tokens_mb=8.0, reduce_mb=0.25, groups=3)
KIND = Kind("experts", 12, lambda job: experts_program(job, GROUPS), machine=Machine(4))
IN_THE_SECOND = [(a, b) for a in range(4, 8) for b in range(a + 1, 8)]


def waiting(path: Path, kind: Kind, faults: tuple[Fault, ...] = ()) -> Waiting:
    replace(kind, faults=faults).write(path, 1)
    found = waiting_of(Run(ncclscope.open(str(path)).model))
    assert found is not None
    return found


def with_groups(load: Experts, machine: Machine | None = None) -> Kind:
    return replace(
        KIND, ranks=load.ranks, program=lambda job: experts_program(job, load),
        machine=machine or KIND.machine,
    )  # fmt: skip


def test_a_group_with_slow_links_is_as_slow_as_they_are(tmp_path: Path) -> None:
    slow = tuple(link(a, b, 5, group="group") for a, b in IN_THE_SECOND)
    made = waiting(tmp_path / "c", KIND, slow)
    found = exchange_groups(made)
    assert found.slow.tolist() == [False, False, True, False]  # world, and the groups
    assert np.isnan(found.slowness[0])
    assert 4 < found.slowness[2] < 5.1  # a part of it goes on before the last rank is there
    # With the AllReduce of all ranks, which has no peers, it may be more.
    prediction = WhatIf(made).predict(Change(communicators=(2,)))
    lost = 1 - KIND.job(1).run_ns / replace(KIND, faults=slow).job(1).run_ns
    assert 0.8 * lost < prediction.gained_share <= prediction.most_gained_share


def test_a_slow_link_is_not_its_group(tmp_path: Path) -> None:
    found = exchange_groups(waiting(tmp_path / "c", KIND, (link(4, 5, 20),)))
    assert not found.slow.any()
    assert found.slowness[1:] == pytest.approx(1, abs=0.2)


def test_a_group_that_moves_more_is_not_slow(tmp_path: Path) -> None:
    """Rank 0 has the expert that gets most tokens."""
    popular = replace(GROUPS, popular="fixed", popularity=6.0, compute_follows=False)
    found = exchange_groups(waiting(tmp_path / "c", with_groups(popular)))
    assert not found.slow.any()


def test_of_two_groups_one_has_to_be_far_slower(tmp_path: Path) -> None:
    kind = with_groups(replace(GROUPS, ranks=8, groups=2))
    for factor, is_slow in ((3, False), (6, True)):
        slow = tuple(link(a, b, factor, group="group") for a, b in IN_THE_SECOND)
        found = exchange_groups(waiting(tmp_path / f"{factor}", kind, slow))
        assert found.slow.tolist() == [False, False, is_slow]


def test_groups_on_other_numbers_of_hosts_are_not_equal(tmp_path: Path) -> None:
    """Of groups of four, with three ranks a host, none lies as another does but the outer two."""
    spread = with_groups(replace(GROUPS, ranks=12), Machine(ranks_per_host=3))
    found = exchange_groups(waiting(tmp_path / "c", spread))
    assert np.isnan(found.slowness).tolist() == [True, False, True, False]
