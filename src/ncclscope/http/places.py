"""Who is connected to a server, and who has to leave where places run short."""

import resource
from collections import Counter
from contextlib import suppress
from typing import Protocol

from ncclscope.http.allowed_hosts import is_loopback
from ncclscope.http.limits import Limits

_OTHER_FILES = 128  # descriptors that this process needs for other things


class Closeable(Protocol):
    """A connection."""

    def cancel(self) -> None:
        """Closes it at once."""


def file_limit(wanted: int) -> int:
    """How many connections this process can have: `wanted`, or fewer where it may not open that
    many files. Raises its own limit as far as it may.
    """
    least = wanted + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < least:
        raised = least if hard == resource.RLIM_INFINITY else min(least, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    if soft == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, max(soft - _OTHER_FILES, 8))


class Places:
    """The connections of a server, those that were silent longest first."""

    def __init__(self, limits: Limits) -> None:
        self._most = file_limit(limits.connections)
        self._most_of_others = max(self._most - limits.for_loopback, self._most // 2)
        self._from_address = limits.from_address
        self._address: dict[Closeable, str] = {}
        self._count: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._address)

    def connections(self) -> list[Closeable]:
        """All connections."""
        return list(self._address)

    def take(self, connection: Closeable, address: str) -> None:
        """A place for a new connection; where there is none left, another one is closed."""
        leaves = self._who_leaves(address)
        if leaves is not None:
            self.leave(leaves)
            leaves.cancel()
        self._address[connection] = address
        self._count[address] += 1

    def touch(self, connection: Closeable) -> None:
        """The connection has just been answered."""
        if connection in self._address:
            self._address[connection] = self._address.pop(connection)

    def leave(self, connection: Closeable) -> None:
        """The connection is closed."""
        address = self._address.pop(connection, None)
        if address is not None:
            self._count[address] -= 1
            if not self._count[address]:
                del self._count[address]

    def _who_leaves(self, address: str) -> Closeable | None:
        if is_loopback(address):
            return self._oldest_of(self._busiest(True)) if len(self) >= self._most else None
        if self._count[address] >= self._from_address:
            return self._oldest_of(address)
        others = sum(count for peer, count in self._count.items() if not is_loopback(peer))
        if others >= self._most_of_others or len(self) >= self._most:
            return self._oldest_of(self._busiest(others < self._most_of_others))
        return None

    def _busiest(self, with_loopback: bool) -> str:
        """The address with the most connections."""
        counts = {
            peer: count
            for peer, count in self._count.items()
            if with_loopback or not is_loopback(peer)
        }
        return max(counts, key=lambda peer: counts[peer])

    def _oldest_of(self, address: str) -> Closeable:
        return next(connection for connection, peer in self._address.items() if peer == address)
