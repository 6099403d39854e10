"""Predictions as numbers and as ranges."""

from ncclscope.analysis.waiting.prediction import Prediction, with_most_gain


def predicted(then_ns: int, error_ns: int) -> Prediction:
    return Prediction(1_000, then_ns, 100, 90, error_ns)


def test_a_range_ends_where_nothing_more_can_be_gained() -> None:
    bounded = with_most_gain(predicted(600, 400), 300)
    assert bounded.range_ns == (700, 1_000)
    assert bounded.step_then_ns is None
    # All of it is impossible, so the replay is off by more than it says.
    assert with_most_gain(predicted(500, 100), 300).range_ns == (700, 900)
    assert with_most_gain(predicted(500, 190), 300).range_ns == (700, 1_000)


def test_what_is_most_likely_stays_where_it_is_possible() -> None:
    bounded = with_most_gain(predicted(980, 400), 100)
    assert bounded.run_then_ns == 980
    assert bounded.range_ns == (900, 1_000)


def test_what_is_possible_stays() -> None:
    for possible in (predicted(900, 50), predicted(750, 20), predicted(701, 30)):
        assert with_most_gain(possible, 300) == possible
    assert with_most_gain(predicted(600, 400), None) == predicted(600, 400)
