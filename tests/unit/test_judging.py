"""Works that the device counted and the host did not, and works that a pause cut off."""

import time
from dataclasses import fields

import numpy as np
import pytest

from ncclscope.model.judging import _cut_off, _uncounted
from ncclscope.model.stamps import FAR_FUTURE, FAR_PAST
from ncclscope.model.works import COLLECTIVE, SEND, Works


def works(**columns: list[int]) -> Works:
    """Works without peculiarities, but for these columns."""
    count = len(columns["form"])
    narrow = {"channels": np.int16, "warps": np.int16, "form": np.int8, "symmetric": np.bool_}
    made = {
        field.name: np.array(columns.get(field.name, [0] * count), narrow.get(field.name, np.int64))
        for field in fields(Works)
    }
    return Works(**made)


@pytest.mark.parametrize(
    ("form", "group", "peer", "expected"),
    [
        (COLLECTIVE, [7, 9], -1, 4),
        (COLLECTIVE, [7, 7], -1, FAR_FUTURE),  # two in one launch share its channels somehow
        (SEND, [7, 9], 3, FAR_FUTURE),
        (SEND, [7, 9], 0, 1),  # to itself
    ],
)
def test_the_channels_that_it_may_have_used(
    form: int, group: list[int], peer: int, expected: int
) -> None:
    silent = works(form=[form] * 2, group=group, channels=[4, 4], peer=[peer] * 2)
    found = _uncounted(
        silent, np.zeros(2, bool), np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones(1, bool)
    )
    assert found.first_channels.tolist() == [expected] * 2


def random_works(count: int, comms: int, span_ns: int) -> tuple[Works, np.ndarray]:
    """Works of some communicators, and which have kernels."""
    draw = np.random.default_rng(count)
    enqueue_ns = draw.integers(0, span_ns, count)  # of several threads: in no order
    made = works(
        form=[COLLECTIVE] * count,
        comm=draw.integers(0, comms, count).tolist(),
        enqueue_ns=enqueue_ns.tolist(),
    )
    return made, draw.random(count) < 0.6


def test_what_a_pause_cut_off_is_behind_the_last_kernel_before_it() -> None:
    some, has_kernels = random_works(400, 5, 300)
    pauses_ns = np.array([40, 40, 90, 91, 250])
    expected = np.zeros(len(some), bool)
    for end_ns in pauses_ns:
        for comm in range(5):
            mine = (some.enqueue_ns <= end_ns) & (some.comm == comm)
            last_ns = some.enqueue_ns[mine & has_kernels].max(initial=FAR_PAST)
            expected |= mine & ~has_kernels & (some.enqueue_ns > last_ns)
    assert 5 < expected.sum() < 100
    assert _cut_off(pauses_ns, some, has_kernels).tolist() == expected.tolist()
    assert not _cut_off(np.empty(0, np.int64), some, has_kernels).any()


def test_many_pauses_and_communicators_cost_no_more_than_few() -> None:
    """Each work was looked at once for every pause and communicator: minutes, here."""
    some, has_kernels = random_works(200_000, 1_000, 10**9)
    began = time.process_time()
    assert _cut_off(np.arange(0, 10**9, 10**6), some, has_kernels).any()
    assert time.process_time() - began < 5
