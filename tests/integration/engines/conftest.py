"""What all tests of engines have in common."""

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

_MOST_S = 420  # a test that waits for a cluster that is gone fails, and does not hold up all others


@pytest.fixture(autouse=True)
def ends_in_time() -> Iterator[None]:
    """Fails a test that waits for ever."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"did not end within {_MOST_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_MOST_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
