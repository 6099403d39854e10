"""Loops over everything that can go wrong: a sample of it in each test run, all of it by `make exhaustive`."""

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
IS_EXHAUSTIVE = bool(os.environ.get("NCCLSCOPE_TEST_EXHAUSTIVE"))


def sample(cases: Sequence[T], step: int) -> Sequence[T]:
    """Every `step`-th case; all of them in an exhaustive run."""
    return cases if IS_EXHAUSTIVE else cases[::step]
