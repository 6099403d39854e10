"""A process's ticks as the host's CLOCK_MONOTONIC, by the clock pairs that the recorder took once a
second.

Example: with the pairs (ticks 1,000, 50 ns) and (ticks 3,000, 1,050 ns) a tick is half a ns. Ticks
2,000 are 550 ns. Ticks 5,000 lie behind the last pair, where the rate between the first pair and
the last one goes on: 2,050 ns.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.capture.header import Header

FARTHEST_NS = 1 << 61  # damaged times are clipped there, so that sums of two do not wrap around
_LONGEST_UPTIME_NS = 1 << 58  # nine years
# Events lie between the first pair and the last, give or take a second. A hundred days leave room
# for a job whose helper thread was stopped, and still refuse damaged ticks.
_REACH_NS = 1 << 53
# Of middle ticks, CLOCK_MONOTONIC and CLOCK_REALTIME.
_MOST = np.array([[FARTHEST_NS], [_LONGEST_UPTIME_NS], [FARTHEST_NS]], np.int64)


@dataclass(frozen=True, slots=True)
class TickClock:
    """Straight lines between pairs; outside of them, the average rate."""

    ticks: npt.NDArray[np.int64]
    monotonic_ns: npt.NDArray[np.int64]
    ns_per_tick: float
    realtime_offset_ns: int  # CLOCK_REALTIME minus CLOCK_MONOTONIC at the last pair

    def to_ns(self, ticks: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Ticks as CLOCK_MONOTONIC in ns, exact to a tick over any uptime."""
        origin, base = int(self.ticks[0]), int(self.monotonic_ns[0])
        x = (np.ascontiguousarray(ticks).view(np.int64) - origin).astype(np.float64)
        knots, values = self.knots()
        ns = np.interp(x, knots, values)
        if len(x) and (x.max() > knots[-1] or x.min() < knots[0]):
            after, before = x > knots[-1], x < knots[0]
            ns[after] = values[-1] + (x[after] - knots[-1]) * self.ns_per_tick
            ns[before] = values[0] + (x[before] - knots[0]) * self.ns_per_tick
            np.clip(ns, -FARTHEST_NS, FARTHEST_NS, out=ns)
        monotonic_ns: npt.NDArray[np.int64] = np.rint(ns, out=ns).astype(np.int64)
        monotonic_ns += base
        return monotonic_ns

    def knots(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """The pairs as distances from the first one: absolute values do not fit doubles."""
        ticks, ns = self.ticks - self.ticks[0], self.monotonic_ns - self.monotonic_ns[0]
        return ticks.astype(np.float64), ns.astype(np.float64)

    def covers(self, monotonic_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of these times can be the process's."""
        low, high = int(self.monotonic_ns[0]) - _REACH_NS, int(self.monotonic_ns[-1]) + _REACH_NS
        if len(monotonic_ns) and low <= monotonic_ns.min() and monotonic_ns.max() <= high:
            return np.ones(len(monotonic_ns), np.bool_)
        return np.asarray((monotonic_ns >= low) & (monotonic_ns <= high))

    def covers_ticks(self, ticks: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """The same for ticks."""
        low, high = self.tick_range()
        return np.asarray((ticks >= np.uint64(low)) & (ticks <= np.uint64(high)))

    def tick_range(self) -> tuple[int, int]:
        """The first and the last ticks that can be the process's."""
        reach = int(min(_REACH_NS / self.ns_per_tick, FARTHEST_NS))
        return max(int(self.ticks[0]) - reach, 0), max(int(self.ticks[-1]) + reach, 0)


def _start(header: Header) -> tuple[int, int, int]:
    """The reading of all clocks at the first init, which every file carries; zeros if damaged."""
    start = (header.start_ticks, header.start_monotonic_ns, header.start_realtime_ns)
    possible = max(start) < FARTHEST_NS and header.start_monotonic_ns < _LONGEST_UPTIME_NS
    return start if possible else (0, 0, 0)


def _forward(pairs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Middle ticks, CLOCK_MONOTONIC and CLOCK_REALTIME in order, without pairs that run backwards
    and impossible ones.
    """
    pairs = pairs[:, np.argsort(pairs[0], kind="stable")]
    forward = np.ones(pairs.shape[1], np.bool_)
    forward[1:] = (np.diff(pairs[:2]) > 0).all(axis=0)
    forward &= ((pairs >= 0) & (pairs < _MOST)).all(axis=0)
    return pairs[:, forward]


def clock_of(sync: npt.NDArray[np.void], header: Header, nominal_hz: int) -> TickClock:
    """The clock of a process's Sync slots, without pairs that run backwards. With no pair at all it
    starts from the header's reading; with one, its rate is `nominal_hz`.
    """
    first = sync["ticks_before"].astype(np.int64)
    pairs = np.empty((3, len(sync)), np.int64)
    middle, ns, real = pairs
    middle[:] = first + (sync["ticks_after"].astype(np.int64) - first) // 2
    ns[:], real[:] = sync["monotonic_ns"], sync["realtime_ns"]
    possible = (pairs >= 0) & (pairs < _MOST)
    if not (possible.all() and (pairs[:2, 1:] > pairs[:2, :-1]).all()):
        middle, ns, real = _forward(pairs)
    if not len(middle):
        middle, ns, real = (np.array([value], np.int64) for value in _start(header))
    rate = 1e9 / nominal_hz if 0 < nominal_hz < 1 << 40 else 1.0
    if len(middle) > 1:
        rate = float(ns[-1] - ns[0]) / float(middle[-1] - middle[0])
    return TickClock(middle, ns, rate, int(real[-1] - ns[-1]))
