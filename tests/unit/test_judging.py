"""Works that the device counted and the host did not."""

from dataclasses import fields

import numpy as np
import pytest

from ncclscope.model.judging import _uncounted
from ncclscope.model.stamps import FAR_FUTURE
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
