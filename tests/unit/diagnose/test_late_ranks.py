"""Sentences about late ranks say no more than is known."""

import pytest

from ncclscope.analysis.waiting.prediction import Prediction
from ncclscope.diagnose.late_ranks import instead

MS = 1_000_000


@pytest.mark.parametrize(
    ("error_ms", "text"),
    [
        (1, "the run would take 80.0 ms instead of 100 ms"),
        (10, "the run would take 70.0 to 90.0 ms instead of 100 ms"),
        (30, "the run of 100 ms would be up to 50 % shorter: how much cannot be told"),
    ],
)
def test_a_range_that_may_be_nothing_says_so(error_ms: int, text: str) -> None:
    """It was "would take 50.0 to 100 ms instead of 100 ms"."""
    prediction = Prediction(100 * MS, 80 * MS, None, None, error_ms * MS)
    assert instead(prediction) == text
