"""A process's counter as the host's CLOCK_MONOTONIC, by the pairs that the recorder took once a
second.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.capture.header import Header

FARTHEST_NS = 1 << 61  # damaged times stay in range instead of wrapping around
_LONGEST_UPTIME_NS = 1 << 58  # nine years
_REACH_NS = 1 << 53  # a hundred days before the first pair or after the last nothing can have been


@dataclass(frozen=True, slots=True)
class TickClock:
    """Straight lines between pairs; before the first and after the last the neighbouring line goes
    on.
    """

    ticks: npt.NDArray[np.int64]
    monotonic_ns: npt.NDArray[np.int64]
    ns_per_tick: float
    realtime_offset_ns: int  # CLOCK_REALTIME minus CLOCK_MONOTONIC at the last pair

    def to_ns(self, ticks: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """CLOCK_MONOTONIC in ns for counter values; exact to the counter's tick over any uptime."""
        origin, base = int(self.ticks[0]), int(self.monotonic_ns[0])
        x = (np.ascontiguousarray(ticks).view(np.int64) - origin).astype(np.float64)
        known, values = self.knots()
        ns = np.interp(x, known, values)
        if len(x) and (x.max() > known[-1] or x.min() < known[0]):
            after, before = x > known[-1], x < known[0]
            ns[after] = values[-1] + (x[after] - known[-1]) * self.ns_per_tick
            ns[before] = values[0] + (x[before] - known[0]) * self.ns_per_tick
            np.clip(ns, -FARTHEST_NS, FARTHEST_NS, out=ns)
        found: npt.NDArray[np.int64] = np.rint(ns, out=ns).astype(np.int64)
        found += base
        return found

    def knots(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """The pairs as distances from the first one: small enough for doubles, as absolute times
        would not be.
        """
        ticks, ns = self.ticks - self.ticks[0], self.monotonic_ns - self.monotonic_ns[0]
        return ticks.astype(np.float64), ns.astype(np.float64)

    def covers(self, monotonic_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of these times the process can have lived to see."""
        low, high = int(self.monotonic_ns[0]) - _REACH_NS, int(self.monotonic_ns[-1]) + _REACH_NS
        if len(monotonic_ns) and low <= monotonic_ns.min() and monotonic_ns.max() <= high:
            return np.ones(len(monotonic_ns), np.bool_)
        return np.asarray((monotonic_ns >= low) & (monotonic_ns <= high))

    def covers_ticks(self, ticks: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """The same for counter values."""
        low, high = self.tick_range()
        return np.asarray((ticks >= np.uint64(low)) & (ticks <= np.uint64(high)))

    def tick_range(self) -> tuple[int, int]:
        """The first and the last counter value that the process can have lived to see."""
        reach = int(min(_REACH_NS / self.ns_per_tick, FARTHEST_NS))
        return max(int(self.ticks[0]) - reach, 0), max(int(self.ticks[-1]) + reach, 0)


def _start(header: Header) -> tuple[int, int, int]:
    """The reading at the first init, which every file carries."""
    start = (header.start_ticks, header.start_monotonic_ns, header.start_realtime_ns)
    fine = max(start) < FARTHEST_NS and header.start_monotonic_ns < _LONGEST_UPTIME_NS
    return start if fine else (0, 0, 0)  # damaged


def clock_of(sync: npt.NDArray[np.void], header: Header, nominal_hz: int) -> TickClock:
    """The clock through Sync slots, pairs that run backwards left out; without any, from the
    header's.
    """
    first = sync["ticks_before"].astype(np.int64)
    middle = first + (sync["ticks_after"].astype(np.int64) - first) // 2
    ns = sync["monotonic_ns"].astype(np.int64)
    order = np.argsort(middle, kind="stable")
    middle, ns, real = middle[order], ns[order], sync["realtime_ns"].astype(np.int64)[order]
    forward = np.ones(len(middle), bool)
    forward[1:] = (np.diff(middle) > 0) & (np.diff(ns) > 0)
    for values, most in ((middle, FARTHEST_NS), (ns, _LONGEST_UPTIME_NS), (real, FARTHEST_NS)):
        forward &= (values >= 0) & (values < most)
    middle, ns, real = middle[forward], ns[forward], real[forward]
    if not len(middle):
        middle, ns, real = (np.array([value], np.int64) for value in _start(header))
    rate = 1e9 / nominal_hz if 0 < nominal_hz < 1 << 40 else 1.0
    if len(middle) > 1:
        rate = float(ns[-1] - ns[0]) / float(middle[-1] - middle[0])
    return TickClock(middle, ns, rate, int(real[-1] - ns[-1]))
