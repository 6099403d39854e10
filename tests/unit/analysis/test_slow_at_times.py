"""Collectives that are slow now and then."""

import numpy as np

from ncclscope.analysis.change import Slowdown, WireTimes, slow_at_times, slow_episodes

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


def test_two_windows_that_are_equally_slow_come_and_go() -> None:
    number = np.arange(COUNT)
    slow = ((number >= 30) & (number < 60)) | ((number >= 120) & (number < 150))
    (slowdown,) = at_times(slow, 4.0)
    assert slowdown.at_times is not None
    assert len(slowdown.at_times.began_ns) == 60
