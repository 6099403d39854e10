"""Roots that have a role of their own, and how long they usually take for it."""

import numpy as np

from ncclscope.analysis.waiting.own_roles import with_own_roles
from ncclscope.analysis.waiting.rooted_collectives import serves
from ncclscope.arrays.types import Ints
from ncclscope.nccl.functions import EVERYBODY, ROOT_FIRST, ROOT_LAST

US = 1_000


def of_two_ranks(rule: list[int], roots: list[int]) -> list[bool]:
    """Whether calls serve that ranks 0 and 1 both make; `roots`: by call."""
    rank = np.repeat([0, 1], len(rule))
    is_root = np.tile(roots, 2) == rank
    return serves(rank, np.zeros(len(rank), np.int64), np.tile(rule, 2), is_root).tolist()


def test_the_only_root_serves_right_after_it_received() -> None:
    rule = [ROOT_LAST, ROOT_LAST, ROOT_FIRST, ROOT_FIRST]
    assert of_two_ranks(rule, [0, 0, 0, 0]) == [False, False, True, False, *[False] * 4]


def test_of_several_roots_none_serves() -> None:
    rule = [ROOT_LAST, ROOT_FIRST, ROOT_LAST, ROOT_FIRST]
    assert not any(of_two_ranks(rule, [0, 0, 1, 1]))


def test_a_root_that_received_from_nobody_does_not_serve() -> None:
    assert not any(of_two_ranks([EVERYBODY, ROOT_FIRST, EVERYBODY, ROOT_FIRST], [0, 0, 0, 0]))


def median_ns(length: Ints) -> float:
    """What is usual of a role with these lengths, where 7 µs were usual of others."""
    count = len(length)
    usual, group = np.full((2, count), 7.0 * US), np.zeros(count, np.int64)
    return float(with_own_roles(np.ones(count, bool), group, length, usual, np.arange(count))[0, 0])


def test_the_quick_repeats_of_a_role_are_usual() -> None:
    quick, slow = np.full(10, 1_500 * US), np.full(30, 13_000 * US)
    assert median_ns(quick) == 1_500 * US
    assert median_ns(np.concatenate([quick, slow])) == 1_500 * US
    assert median_ns(np.concatenate([slow, quick])) == 1_500 * US


def test_few_repeats_of_a_role_show_nothing() -> None:
    assert median_ns(np.full(4, 1_500 * US)) == 7 * US


def test_edges_in_no_role_stay_as_they_are() -> None:
    length, usual = np.full(20, 900 * US), np.full((2, 20), 7.0 * US)
    group, none = np.zeros(20, np.int64), np.zeros(20, bool)
    assert with_own_roles(none, group, length, usual, np.arange(20)) is usual
