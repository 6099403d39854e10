"""A job against equal ones of a history."""

from dataclasses import dataclass

import pytest

from ncclscope.history import difference
from ncclscope.history.difference import JobDifference


@dataclass(frozen=True)
class Row:
    """What a difference reads of a job's row."""

    round_ns: float
    mean_round_ns: float
    step_ns: None = None
    round_kind: str = "dp AllReduce"
    waiting_ns: float = 1e6
    ranks: int = 1
    span_ns: float = 1e8


EQUAL = [Row(10e6, mean * 1e6) for mean in (10.0, 10.9, 9.1, 10.6, 9.4, 10.0)]


@pytest.mark.parametrize(
    ("equal", "job", "verdict", "bounds_loss"),
    [
        (EQUAL[:1] * 6, Row(10e6, 10e6), "same", True),
        (EQUAL, Row(10e6, 11.9e6), "unresolved", False),  # long rounds now and then
        (EQUAL[:1] * 6, Row(10e6, 10.6e6), "unresolved", False),  # it was seen, and it matters
        (EQUAL[:1] * 6, Row(10e6, 12e6), "slower", False),
        (EQUAL[:1] * 6, Row(8e6, 8e6), "faster", True),
    ],
)
def test_the_same_is_what_all_times_say(
    equal: list[Row], job: Row, verdict: str, bounds_loss: bool
) -> None:
    measures = difference._measures(job, equal)  # type: ignore[arg-type]
    found = difference._verdict(measures)
    whole = JobDifference(None, (), measures, (), found, "")  # type: ignore[arg-type]
    assert (whole.verdict, whole.bounds_loss) == (verdict, bounds_loss)
