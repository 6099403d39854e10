"""Which kernels do the same."""

import numpy as np

from ncclscope.analysis.waiting.kernel_kinds import kernel_kinds

MB = 1_000_000


def kinds(groups: list[list[tuple[int, float]]]) -> tuple[list[int], list[int]]:
    """Of groups of sends and receives, (shape, MB) each."""
    parts = [part for group in groups for part in group]
    shape = np.array([part[0] for part in parts])
    size = np.array([int(part[1] * MB) for part in parts])
    first = np.cumsum([0, *map(len, groups[:-1])])
    found = kernel_kinds(shape, shape, size, np.ones(len(parts), bool), first)
    return found[0].tolist(), found[1].tolist()


def test_calls_whose_sizes_lie_close_together_are_of_one_kind() -> None:
    transfer, call = kinds([[(1, 1.6)], [(1, 2.0)], [(1, 2.6)], [(1, 16.0)], [(1, 1.7)]])
    assert call[0] == call[1] == call[2] == call[4] != call[3]
    assert transfer[0] == transfer[4] != transfer[2], "a transfer of twice the size takes longer"


def test_another_shape_of_the_same_size_is_another_kind() -> None:
    assert len(set(kinds([[(1, 2.0)], [(2, 2.0)]])[1])) == 2


def test_groups_of_different_parts_are_of_different_kinds() -> None:
    """Sums of the numbers of their parts are alike."""
    groups = [[(n, 1.0)] for n in range(6)] + [[(1, 1.0), (4, 1.0)], [(2, 1.0), (3, 1.0)]]
    for found in kinds(groups):
        assert len(set(found)) == len(groups)


def test_the_order_of_parts_does_not_matter() -> None:
    for found in kinds([[(1, 1.0), (4, 9.0)], [(4, 9.0), (1, 1.0)]]):
        assert found[0] == found[1]


def test_sizes_of_damaged_captures_have_kinds() -> None:
    for found in kinds([[(1, -1.0)], [(1, -2.0)]]):
        assert found[0] == found[1] >= 0
