"""What serve knows of a job's waiting: sums over all windows, and shares of the last ones."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

Key = TypeVar("Key")
_RECENT_WINDOWS = 2  # in all of which a rank must have been waited for: not for one pause
MADE = "made"
# Times the mean of all ranks: with duties in turn each rank is late, and none is to blame. The
# alert NcclStraggler has the same number.
STANDS_OUT = 1.5


def add_up(sums: dict[Key, int], more: Mapping[Key, int]) -> None:
    """Adds values to sums."""
    for key, value in more.items():
        sums[key] = sums.get(key, 0) + value


@dataclass(frozen=True, slots=True)
class Window:
    """The account of one window, as waiting_window.py answers."""

    length_ns: int
    caused_ns: dict[int, int]
    idle_ns: dict[int, int]
    origins_ns: dict[str, int]


@dataclass(slots=True)
class JobWaiting:
    """The account of one job. Sums only grow; without a window they stay as they are."""

    first_host: str  # of the job's: what is about the whole job is said there
    state: str = ""  # `made`, or why there is none
    covered_ns: int = 0  # time that windows cover
    caused_ns: dict[int, int] = field(default_factory=dict)  # by rank: waiting that began on it
    idle_ns: dict[int, int] = field(default_factory=dict)  # of that, for want of work
    origins_ns: dict[str, int] = field(default_factory=dict)  # all waiting, by where it began
    recent: list[dict[int, float]] = field(default_factory=list)  # shares in the last windows

    @property
    def is_made(self) -> bool:
        """Whether it goes on."""
        return self.state == MADE

    def begin(self, ranks: Iterable[int], why: str) -> None:
        """Counters at 0 for these ranks, so that rates count the first window; `why`: it has to be
        waited for.
        """
        self.state = why
        for rank in ranks:
            self.caused_ns.setdefault(rank, 0)

    def add(self, window: Window) -> None:
        """Adds a window."""
        self.state = MADE
        self.covered_ns += window.length_ns
        add_up(self.caused_ns, window.caused_ns)
        add_up(self.idle_ns, window.idle_ns)
        add_up(self.origins_ns, window.origins_ns)
        others_ns = max(len(window.caused_ns) - 1, 1) * max(window.length_ns, 1)
        shares = {
            rank: (caused - window.idle_ns.get(rank, 0)) / others_ns
            for rank, caused in window.caused_ns.items()
        }
        self.recent = [*self.recent, shares][-_RECENT_WINDOWS:]

    def stop(self, why: str) -> None:
        """No window, because of this."""
        self.state = why
        self.recent = []

    def late_rank(self, least: float) -> tuple[int, float] | None:
        """The rank that the others waited for most, and the least share of their time that they did
        in one of the last windows; None where that is below `least`, or not far above other ranks.
        """
        if not self.is_made or len(self.recent) < _RECENT_WINDOWS:
            return None
        shares = {rank: min(one.get(rank, 0.0) for one in self.recent) for rank in self.recent[-1]}
        rank = max(shares, key=lambda own: shares[own])
        usual = sum(shares.values()) / len(shares)
        late = shares[rank] > max(least, STANDS_OUT * usual)
        return (rank, shares[rank]) if late else None
