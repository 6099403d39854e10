"""What is usual where one rank alone seems to have waited for a kernel's end."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from ncclscope.analysis.waiting.lone_edges import lone_usual_ns
from ncclscope.analysis.waiting.origins import KINDS

EDGES = {name: code for code, name in KINDS.items()}
RANKS, STEPS = 4, 24
PAUSE_NS, STEP_NS = 120_000_000, 200_000_000
GATHER, REDUCE = 0, 1  # positions


def job(
    ahead_ns: int, pauses: dict[int, tuple[int, ...]]
) -> tuple[SimpleNamespace, SimpleNamespace]:
    """Two calls a step. Hosts call the second one `ahead_ns` before the first has ended, because
    they wait for the step before. `pauses`: by rank the steps in which the host is late.
    """
    count = 2 * RANKS * STEPS
    events = np.zeros((count, 3), np.int64)
    edge = np.full((count, 3), EDGES["host"], np.int8)
    back, before = np.zeros((count, 3), np.int8), np.zeros((count, 3), np.int64)
    for rank in range(RANKS):
        for step in range(STEPS):
            gather = 2 * (rank * STEPS + step)
            begin = step * STEP_NS
            events[gather] = begin, begin + 1000, begin + 10_000_000
            called = begin + 10_000_000 - ahead_ns
            if step in pauses.get(rank, ()):
                called = begin + 10_000_000 + PAUSE_NS
                edge[gather + 1, 0] = EDGES["host after sync"]
                back[gather + 1, 0], before[gather + 1, 0] = 1, 3 * gather + 2
            events[gather + 1] = called, called + 1000, called + 2000
    kernels = SimpleNamespace(
        events_ns=events, rank=np.repeat(np.arange(RANKS, dtype=np.int32), 2 * STEPS)
    )
    dependencies = SimpleNamespace(
        edge=edge.reshape(-1), back=back.reshape(-1), before=before.reshape(-1),
        position=np.tile([GATHER, REDUCE], RANKS * STEPS), positions=2,
    )  # fmt: skip
    return kernels, dependencies


def usual_of_calls(kernels: SimpleNamespace, dependencies: SimpleNamespace) -> Any:
    """Medians by kernel."""
    group = dependencies.position * 8 + dependencies.edge.reshape(-1, 3)[:, 0]
    sample = np.arange(len(group))
    return lone_usual_ns(cast(Any, kernels), cast(Any, dependencies), group, 0, sample)[0]


def test_pauses_of_one_rank_do_not_say_what_is_usual() -> None:
    late = (2, 7, 11, 15, 19)
    kernels, dependencies = job(ahead_ns=2_000_000, pauses={3: late})
    usual = usual_of_calls(kernels, dependencies)
    paused = [2 * (3 * STEPS + step) + 1 for step in late]
    assert (usual[paused] == 0).all()  # others had called before that end
    assert np.isnan(np.delete(usual, paused)).all()


def test_others_that_call_after_the_end_show_how_long_it_takes() -> None:
    kernels, dependencies = job(ahead_ns=-300_000, pauses={3: (2, 7, 11)})
    usual = usual_of_calls(kernels, dependencies)
    assert usual[2 * (3 * STEPS + 2) + 1] == 300_000


def test_what_several_ranks_do_is_compared_among_them() -> None:
    kernels, dependencies = job(ahead_ns=2_000_000, pauses={2: (2, 7), 3: (2, 7)})
    assert np.isnan(usual_of_calls(kernels, dependencies)).all()


def test_few_other_repeats_show_nothing() -> None:
    kernels, dependencies = job(ahead_ns=2_000_000, pauses={3: tuple(range(STEPS))})
    rows = np.arange(2 * RANKS * STEPS)
    dependencies.position = np.where(
        kernels.rank == 3, dependencies.position, dependencies.position + 2
    )
    dependencies.positions = 4
    group = dependencies.position * 8 + dependencies.edge.reshape(-1, 3)[:, 0]
    usual = lone_usual_ns(cast(Any, kernels), cast(Any, dependencies), group, 0, rows)[0]
    assert np.isnan(usual).all()
