"""Where ranks meet: everybody says something, and when all have, all get one answer.

That one step serves for all there is to agree on: the communicator's id, barriers, when to stop,
and handing in results. Whoever dies, or does not come within the time limit, ends the benchmark for
all: closing a rank's connection is how it is told (see worker.watch).
"""

import errno
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ncclscope.bench.messages import Message, MessageError, decoded, encoded
from ncclscope.errors import NcclscopeError
from ncclscope.humanize import printable

Answer = Callable[[str, list[Message]], Message]  # the point, what all ranks said, in order
_SLICE_S = 0.1
_GRACE_S = 1.0  # for a rank's own words to arrive before its death is reported
_MOST_NAMED = 8
_LONGEST_HELLO = 1 << 16


class RankError(NcclscopeError):
    """A rank that failed, died or never came."""


@dataclass(slots=True)
class Peer:
    """One rank's connection."""

    connection: socket.socket
    rank: int | None = None
    who: str = ""  # for messages: host and process
    buffer: bytearray = field(default_factory=bytearray)
    waiting: Message | None = None


def listen(host: str, port: int) -> socket.socket:
    """A socket that ranks can come to: at this address, or where it is not our own, at all."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            return listen("0.0.0.0", port)  # a name that means this host to others only
        # Python adds the address to the cause, which is there already.
        cause = str(error.strerror or error).partition(" (while ")[0]
        hint = "Choose another port on all ranks: --address HOST:PORT, or in the first of --hosts"
        raise NcclscopeError(f"cannot listen at {host}:{port}: {cause}", hint) from None


class Coordinator:
    """Hears all ranks, and answers when the last has spoken."""

    def __init__(
        self,
        server: socket.socket,
        ranks: int,
        token: str,
        timeout_s: float,
        answer: Answer,
        alive: Callable[[], str | None],
    ) -> None:
        self._server, self._ranks, self._token = server, ranks, token
        self._timeout_s, self._answer, self._alive = timeout_s, answer, alive
        self._selector = selectors.DefaultSelector()
        self._peers: dict[int, Peer] = {}
        self._strangers: list[Peer] = []
        self._point = "the start"
        self._since = self._next_look = time.monotonic()
        server.setblocking(False)
        self._selector.register(server, selectors.EVENT_READ, None)

    def run(self) -> None:
        """Serves until all ranks have said good-bye; raises when one cannot."""
        try:
            while True:
                for key, _ in self._selector.select(_SLICE_S):
                    if key.data is None:
                        self._welcome()
                    else:
                        self._hear(key.data)
                if self._answered_all() == "good-bye":
                    return
                self._look_round()
        finally:
            self._close()

    def _close(self) -> None:
        for peer in (*self._peers.values(), *self._strangers):
            peer.connection.close()
        self._server.close()
        self._selector.close()

    def _welcome(self) -> None:
        try:
            connection, _ = self._server.accept()
        except OSError:
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        peer = Peer(connection)
        self._strangers.append(peer)
        self._selector.register(connection, selectors.EVENT_READ, peer)

    def _forget(self, peer: Peer) -> None:
        self._selector.unregister(peer.connection)
        peer.connection.close()
        if peer in self._strangers:
            self._strangers.remove(peer)

    def _hear(self, peer: Peer) -> None:
        try:
            more = peer.connection.recv(1 << 20)
            if not more:
                raise MessageError("connection closed")
            peer.buffer += more
            if peer.rank is None and len(peer.buffer) > _LONGEST_HELLO:
                raise MessageError("too much from a stranger")
            message = decoded(peer.buffer)
        except (OSError, MessageError) as error:
            self._forget(peer)
            if peer.rank is not None:
                self._lost(peer, str(error))
            return
        if message is None:
            return
        if peer.rank is None:
            self._introduce(peer, message)
        if "failed" in message.said:
            raise RankError(f"{self._name(peer)}: {message.said['failed']}")
        peer.waiting = message

    def _introduce(self, peer: Peer, message: Message) -> None:
        rank = message.said.get("rank")
        known = isinstance(rank, int) and 0 <= rank < self._ranks
        if message.said.get("token") != self._token or not isinstance(rank, int) or not known:
            self._forget(peer)  # a stranger, or a rank of another run: neither is our business
            return
        if rank in self._peers:
            message_text = f"two processes say that they are rank {rank} of {self._ranks}"
            raise RankError(message_text, "Start each rank once")
        peer.rank, peer.who = rank, str(message.said.get("who", ""))
        self._strangers.remove(peer)
        self._peers[rank] = peer
        self._since = time.monotonic()

    def _lost(self, peer: Peer, why: str) -> None:
        """A rank is gone. Its process may have more to say about it than its connection."""
        until = time.monotonic() + _GRACE_S
        while time.monotonic() < until:
            died = self._alive()
            if died:
                raise RankError(f"{died} in {self._point}", "The others were stopped")
            time.sleep(_SLICE_S / 2)
        raise RankError(
            f"{self._name(peer)} is gone ({why}) in {self._point}", "The others were stopped"
        )

    def _answered_all(self) -> str:
        """Answers if everybody waits; returns the point that was reached, or nothing."""
        if len(self._peers) < self._ranks or any(p.waiting is None for p in self._peers.values()):
            return ""
        said = [self._peers[rank].waiting or Message() for rank in range(self._ranks)]
        points = {str(message.said.get("point")) for message in said}
        if len(points) > 1:
            raise RankError(f"ranks do not agree where they are: {', '.join(sorted(points))}")
        point = points.pop()
        reply = encoded(self._answer(point, said))
        self._point, self._since = str(said[0].said.get("doing") or self._point), time.monotonic()
        for peer in self._peers.values():
            peer.waiting = None
            try:
                peer.connection.sendall(reply)
            except OSError as error:
                self._lost(peer, str(error))
        return point

    def _name(self, peer: Peer) -> str:
        return f"rank {peer.rank}" + (f" ({printable(peer.who)})" if peer.who else "")

    def _look_round(self) -> None:
        """Nobody may be waited for without end."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _SLICE_S
        died = self._alive()
        if died:
            self._hear_last_words()
            raise RankError(f"{died} in {self._point}", "The others were stopped")
        if now - self._since < self._timeout_s:
            return
        missing = [rank for rank in range(self._ranks) if rank not in self._peers]
        late = [peer for peer in self._peers.values() if peer.waiting is None]
        limit = f"within {self._timeout_s:g} s"
        hint = "Raise the limit with --timeout if they need longer"
        if missing:
            hint += "; in a launcher's job every rank must run bench, --ranks N starts them here"
            raise RankError(f"{named(missing)} never came {limit}", hint)
        who = ", ".join(self._name(peer) for peer in late[:_MOST_NAMED])
        more = f" and {len(late) - _MOST_NAMED} more" if len(late) > _MOST_NAMED else ""
        raise RankError(f"{who}{more} did not get through {self._point} {limit}", hint)

    def _hear_last_words(self) -> None:
        """What a dead rank has said may still be on its way, and says more than its exit code."""
        until = time.monotonic() + _SLICE_S
        while time.monotonic() < until:
            for key, _ in self._selector.select(_SLICE_S / 4):
                if key.data is not None:
                    self._hear(key.data)


def named(ranks: list[int]) -> str:
    """Ranks in words, not too many of them."""
    shown = ", ".join(map(str, ranks[:_MOST_NAMED]))
    more = f" and {len(ranks) - _MOST_NAMED} more" if len(ranks) > _MOST_NAMED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"
