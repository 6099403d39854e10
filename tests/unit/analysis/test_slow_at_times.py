"""Collectives that are slow now and then."""

import numpy as np

from ncclscope.analysis.change import Slowdown, slow_at_times, slow_episodes
from ncclscope.analysis.wire_times import WireTimes

COUNT = 200
MS = 1_000_000


def wire(
    slow: np.ndarray, times: float | np.ndarray, noise: float = 0.03
) -> tuple[WireTimes, dict[int, np.ndarray]]:
    """Collectives of one communicator, of which some take longer."""
    length = np.random.default_rng(1).lognormal(0.0, noise, COUNT) * MS
    length = np.where(slow, times * length, length)
    end = np.arange(COUNT) * 10 * MS
    rows = np.arange(COUNT)
    relative = np.log(length / np.median(length))
    return WireTimes(np.zeros(COUNT, np.int64), end, length, relative), {0: rows}


def at_times(slow: np.ndarray, times: float, noise: float = 0.03) -> tuple[Slowdown, ...]:
    return slow_at_times(*wire(slow, times, noise))


def test_a_network_that_is_slow_in_three_of_ten_steps_is_found() -> None:
    (slowdown,) = at_times(np.arange(COUNT) % 10 >= 7, 2.5)
    assert slowdown.at_times is not None
    assert (len(slowdown.at_times.began_ns), slowdown.at_times.of_all) == (60, COUNT)
    assert 2.4 < slowdown.changes[0].factor < 2.6


def test_packets_that_are_sent_again_are_found() -> None:
    (slowdown,) = at_times(np.random.default_rng(2).random(COUNT) < 0.05, 30.0)
    assert 25 < slowdown.changes[0].factor < 35


def test_heavy_noise_is_no_slowdown() -> None:
    assert not at_times(np.zeros(COUNT, bool), 1.0, noise=0.6)


def test_two_windows_are_two_slowdowns() -> None:
    number = np.arange(COUNT)
    slow = (number >= 30) & (number < 60), (number >= 120) & (number < 150)
    episodes = slow_episodes(*wire(slow[0] | slow[1], np.where(slow[0], 10.0, 3.0)), 1.2)
    began = sorted(round(episode.began_ns / (10 * MS)) for episode in episodes)
    assert began == [29, 120]


def test_a_window_in_which_all_take_nearly_twice_as_long_is_found() -> None:
    number = np.arange(COUNT)
    (episode,) = slow_episodes(*wire((number >= 70) & (number < 140), 1.9), 1.2)
    assert round(episode.began_ns / (10 * MS)) == 70
    assert not slow_episodes(*wire((number >= 70) & (number < 140), 1.9, noise=0.3), 1.2)


def test_two_windows_that_are_equally_slow_come_and_go() -> None:
    number = np.arange(COUNT)
    slow = ((number >= 30) & (number < 60)) | ((number >= 120) & (number < 150))
    (slowdown,) = at_times(slow, 4.0)
    assert slowdown.at_times is not None
    assert len(slowdown.at_times.began_ns) == 60


def several(slow: list[np.ndarray]) -> tuple[int, ...]:
    """Those of several communicators, of the same lengths but for these, that come and go."""
    made = [wire(one, 3.0)[0] for one in slow]
    at = np.concatenate([one.end_ns + place * MS for place, one in enumerate(made)])
    order = np.argsort(at)
    number = np.repeat(np.arange(len(slow)), COUNT)[order]
    columns = (
        np.concatenate([getattr(one, name) for one in made])[order]
        for name in ("wire_ns", "relative")
    )
    rows = {place: np.flatnonzero(number == place) for place in range(len(slow))}
    found = slow_at_times(WireTimes(number, at[order], *columns), rows)
    return tuple(change.communicator for slowdown in found for change in slowdown.changes)


def by_chance(share: float, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(COUNT) < share


def test_what_all_communicators_have_by_chance_is_noise() -> None:
    shares = (0.04, 0.06, 0.08, 0.1, 0.08, 0.02)
    assert not several([by_chance(share, seed) for seed, share in enumerate(shares)])


def test_one_that_is_slow_more_often_than_others_is_found() -> None:
    assert several([by_chance(0.02, seed) for seed in range(5)] + [by_chance(0.2, 9)]) == (5,)


def test_communicators_that_are_slow_at_the_same_time_are_found() -> None:
    """Congestion: all have the same share."""
    together = by_chance(0.1, 3)
    assert several([together | by_chance(0.01, seed) for seed in range(10, 14)]) == (0, 1, 2, 3)


def test_a_window_of_one_of_several_communicators_is_found() -> None:
    """Where all are looked at together, those that stay as they are hide it."""
    number, row = np.divmod(np.arange(4 * 20), 4)
    slow = (row == 1) & (number >= 5) & (number < 12)
    length = np.random.default_rng(1).lognormal(0.0, 0.05, 80) * MS * np.where(slow, 40.0, 1.0)
    times = WireTimes(row, np.arange(80) * 10 * MS, length, np.log(length / MS))
    (episode,) = slow_episodes(times, {one: np.flatnonzero(row == one) for one in range(4)}, 1.2)
    assert [change.communicator for change in episode.changes] == [1]
    assert 35 < episode.changes[0].factor < 45
