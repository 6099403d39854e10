"""The coordinator of ranks: each rank sends a message, and when all have, all get one reply.

This step serves for everything that ranks must agree on: the communicator's id, barriers, when to
stop, and collecting results. A rank that dies, or does not come within the time limit, ends the
benchmark: the others notice that their connection is closed (see worker.watch).
"""

import errno
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ncclscope.bench.messages import Message, MessageError, decode, encode
from ncclscope.errors import NcclscopeError
from ncclscope.humanize import printable

Reply = Callable[[str, list[Message]], Message]  # from the point, and the messages by rank
_SLICE_S = 0.1
_GRACE_S = 1.0  # a dead rank's last message may arrive within this time
_MOST_LISTED = 8
_LONGEST_FIRST_MESSAGE = 1 << 16
LAST_POINT = "end"


class RankError(NcclscopeError):
    """A rank failed, died or never connected."""


@dataclass(slots=True)
class Peer:
    """One connection."""

    connection: socket.socket
    rank: int | None = None  # None before its first message
    who: str = ""  # host and process, for error messages
    buffer: bytearray = field(default_factory=bytearray)
    waiting: Message | None = None


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on this address; on all addresses if this host does not have it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            return listen("0.0.0.0", port)  # other hosts may know this one by that name
        # Python adds the address to the cause; the message has it already.
        cause = str(error.strerror or error).partition(" (while ")[0]
        hint = "Choose another port on all ranks: --address HOST:PORT, or in the first of --hosts"
        raise NcclscopeError(f"cannot listen at {host}:{port}: {cause}", hint) from None


class Coordinator:
    """Collects a message from each rank, and then replies to all."""

    def __init__(
        self,
        server: socket.socket,
        ranks: int,
        token: str,
        timeout_s: float,
        reply: Reply,
        first_failure: Callable[[], str | None],
    ) -> None:
        """`first_failure` says which rank's process failed; None if none did."""
        self._server, self._ranks, self._token = server, ranks, token
        self._timeout_s, self._reply, self._first_failure = timeout_s, reply, first_failure
        self._selector = selectors.DefaultSelector()
        self._peers: dict[int, Peer] = {}  # by rank
        self._unknown: list[Peer] = []  # connections without a first message
        self._doing = "the start"
        self._since = self._next_check = time.monotonic()
        server.setblocking(False)
        self._selector.register(server, selectors.EVENT_READ, None)

    def run(self) -> None:
        """Serves until all ranks are done; raises if one fails."""
        try:
            while True:
                for key, _ in self._selector.select(_SLICE_S):
                    if key.data is None:
                        self._accept()
                    else:
                        self._receive(key.data)
                if self._reply_if_complete() == LAST_POINT:
                    return
                self._check_ranks()
        finally:
            self._close()

    def _close(self) -> None:
        for peer in (*self._peers.values(), *self._unknown):
            peer.connection.close()
        self._server.close()
        self._selector.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._server.accept()
        except OSError:
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        peer = Peer(connection)
        self._unknown.append(peer)
        self._selector.register(connection, selectors.EVENT_READ, peer)

    def _disconnect(self, peer: Peer) -> None:
        self._selector.unregister(peer.connection)
        peer.connection.close()
        if peer in self._unknown:
            self._unknown.remove(peer)

    def _receive(self, peer: Peer) -> None:
        try:
            data = peer.connection.recv(1 << 20)
            if not data:
                raise MessageError("connection closed")
            peer.buffer += data
            if peer.rank is None and len(peer.buffer) > _LONGEST_FIRST_MESSAGE:
                raise MessageError("first message too long")
            message = decode(peer.buffer)
        except (OSError, MessageError) as error:
            self._disconnect(peer)
            if peer.rank is not None:
                self._raise_lost(peer, str(error))
            return
        if message is None:
            return
        if peer.rank is None:
            self._register(peer, message)
        if "failed" in message.fields:
            raise RankError(f"{self._name(peer)}: {message.fields['failed']}")
        peer.waiting = message

    def _register(self, peer: Peer, message: Message) -> None:
        """Makes a connection a rank's; closes it if it is none of this run."""
        rank = message.fields.get("rank")
        valid = isinstance(rank, int) and 0 <= rank < self._ranks
        if message.fields.get("token") != self._token or not isinstance(rank, int) or not valid:
            self._disconnect(peer)
            return
        if rank in self._peers:
            message_text = f"two processes say that they are rank {rank} of {self._ranks}"
            raise RankError(message_text, "Start each rank once")
        peer.rank, peer.who = rank, str(message.fields.get("who", ""))
        self._unknown.remove(peer)
        self._peers[rank] = peer
        self._since = time.monotonic()

    def _raise_lost(self, peer: Peer, why: str) -> None:
        """Raises that a rank is lost, with the exit code of its process if that comes in time."""
        until = time.monotonic() + _GRACE_S
        while time.monotonic() < until:
            failure = self._first_failure()
            if failure:
                raise RankError(f"{failure} in {self._doing}", "The others were stopped")
            time.sleep(_SLICE_S / 2)
        raise RankError(
            f"{self._name(peer)} is gone ({why}) in {self._doing}", "The others were stopped"
        )

    def _reply_if_complete(self) -> str:
        """Replies if all ranks wait; returns the point that they reached, or ""."""
        if len(self._peers) < self._ranks or any(p.waiting is None for p in self._peers.values()):
            return ""
        messages = [self._peers[rank].waiting or Message() for rank in range(self._ranks)]
        points = {str(message.fields.get("point")) for message in messages}
        if len(points) > 1:
            raise RankError(f"ranks do not agree where they are: {', '.join(sorted(points))}")
        point = points.pop()
        reply = encode(self._reply(point, messages))
        self._doing = str(messages[0].fields.get("doing") or self._doing)
        self._since = time.monotonic()
        for peer in self._peers.values():
            peer.waiting = None
            try:
                peer.connection.sendall(reply)
            except OSError as error:
                self._raise_lost(peer, str(error))
        return point

    def _name(self, peer: Peer) -> str:
        return f"rank {peer.rank}" + (f" ({printable(peer.who)})" if peer.who else "")

    def _check_ranks(self) -> None:
        """Raises if a process failed, or if ranks keep the others waiting for too long."""
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + _SLICE_S
        failure = self._first_failure()
        if failure:
            self._receive_pending()
            raise RankError(f"{failure} in {self._doing}", "The others were stopped")
        if now - self._since < self._timeout_s:
            return
        missing = [rank for rank in range(self._ranks) if rank not in self._peers]
        late = [peer for peer in self._peers.values() if peer.waiting is None]
        limit = f"within {self._timeout_s:g} s"
        hint = "Raise the limit with --timeout if they need longer"
        if missing:
            hint += "; in a launcher's job every rank must run bench, --ranks N starts them here"
            raise RankError(f"{_list_ranks(missing)} never came {limit}", hint)
        who = ", ".join(self._name(peer) for peer in late[:_MOST_LISTED])
        more = f" and {len(late) - _MOST_LISTED} more" if len(late) > _MOST_LISTED else ""
        raise RankError(f"{who}{more} did not get through {self._doing} {limit}", hint)

    def _receive_pending(self) -> None:
        """Receives what is on its way: a dead rank's last message says more than its exit code."""
        until = time.monotonic() + _SLICE_S
        while time.monotonic() < until:
            for key, _ in self._selector.select(_SLICE_S / 4):
                if key.data is not None:
                    self._receive(key.data)


def _list_ranks(ranks: list[int]) -> str:
    listed = ", ".join(map(str, ranks[:_MOST_LISTED]))
    more = f" and {len(ranks) - _MOST_LISTED} more" if len(ranks) > _MOST_LISTED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {listed}{more}"
