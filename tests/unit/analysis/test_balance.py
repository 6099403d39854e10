"""Calls and bytes by rank."""

from ncclscope.analysis.balance import common_windows


def test_common_windows_are_those_of_all_processes() -> None:
    assert common_windows([None, [(0, 5), (7, 9)], [(4, 8)]]) == [(4, 5), (7, 8)]
    assert common_windows([None]) is None
    assert common_windows([[(0, 1)], [(2, 3)]]) == []
