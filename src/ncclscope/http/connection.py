"""One client's connection: collects a request, has it answered, sends the answer.

A protocol of asyncio, without streams: a piece of a request costs an append, and a task is made
only for a request that is complete. So clients that are silent or trickle cost next to nothing.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ncclscope.http.limits import Limits
from ncclscope.http.places import Places

_END = b"\r\n\r\n"
# Bytes to send for a request's head, and whether the connection stays open; None: it is too long.
Answer = Callable[[bytes | None], Awaitable[tuple[bytes, bool]]]


class Connection(asyncio.Protocol):
    """Answers one request after the other, in the order in which they come."""

    _transport: asyncio.Transport
    _deadline: asyncio.TimerHandle

    def __init__(self, answer: Answer, limits: Limits, places: Places) -> None:
        self._answer, self._limits, self._places = answer, limits, places
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._task: asyncio.Task[None] | None = None  # answers a request
        self._drained: asyncio.Future[None] | None = None  # set while the client does not read
        self._at_end = False  # the client sends nothing more

    def cancel(self) -> None:
        """Closes the connection at once."""
        self._transport.abort()

    # ---- called by asyncio ----
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(0)
        peer = transport.get_extra_info("peername") or ("",)
        self._places.take(self, str(peer[0]))
        self._start_deadline()

    def connection_lost(self, error: Exception | None) -> None:
        self._places.leave(self)
        self._deadline.cancel()
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._task is None:
            self._take_request(len(data))
        elif len(self._received) > self._limits.request_bytes:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._at_end = True
        return self._task is not None  # a client may shut down its side and wait for the answer

    def pause_writing(self) -> None:
        self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    # ---- requests ----
    def _start_deadline(self) -> None:
        # Not the same for all: a thousand that are dropped at once come back at once.
        limit_s = self._limits.request_s * random.uniform(0.6, 1.0)
        self._deadline = self._loop.call_later(limit_s, self.cancel)

    def _take_request(self, new_bytes: int) -> None:
        """Starts to answer the first request if it is complete; `new_bytes` of it are new."""
        received, most = self._received, self._limits.request_bytes
        end = received.find(_END, max(len(received) - new_bytes - len(_END) + 1, 0))
        if end < 0 and len(received) <= most:
            return
        self._deadline.cancel()
        head = bytes(received[: end + len(_END)]) if 0 <= end <= most else None
        del received[: end + len(_END) if head else len(received)]
        self._task = self._loop.create_task(self._respond(head))

    async def _respond(self, head: bytes | None) -> None:
        try:
            data, keep_open = await self._answer(head)
            await self._send(data)
        except BaseException:  # the client must not wait for an answer that nobody makes
            self.cancel()
            raise
        self._task = None
        if keep_open:
            self._places.touch(self)
            self._start_deadline()
            self._transport.resume_reading()
            self._take_request(len(self._received))
        if not keep_open or (self._at_end and self._task is None):
            with suppress(OSError):  # the client is gone
                self._transport.write_eof()
            self._transport.close()

    async def _send(self, data: bytes) -> None:
        self._transport.write(data)
        if self._drained is None:
            return
        deadline = self._loop.call_later(self._limits.response_s, self.cancel)
        try:
            await self._drained
        finally:
            deadline.cancel()
            self._drained = None
