"""A small HTTP/1.1 server with a limit on everything: connections, sizes, times.

A slow or silent client costs a socket and nothing else. It has one deadline for its whole request,
however slowly it sends. Where places run short, the address with the most connections loses the one
that was silent longest, and some places are for this machine alone. Responses are made in threads,
or at once where they are ready.
"""

import asyncio
import errno
import hmac
import json
import socket
import string
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from ncclscope.errors import NcclscopeError
from ncclscope.http.allowed_hosts import AllowedHosts, address_family
from ncclscope.http.connection import Connection
from ncclscope.http.limits import Limits
from ncclscope.http.places import Places
from ncclscope.threads import Threads

Query = dict[str, str]


_LIMITS = Limits()
_ACCEPTED_AT_ONCE = 32
_LOOKS_FOR_THREADS_EVERY_S = 1.0
_IN_NAMES = frozenset(
    f"{string.ascii_lowercase}{string.digits}!#$%&'*+-.^_`|~"
)  # RFC 9110: a token
_ONCE = frozenset(("host", "content-length", "transfer-encoding"))


@dataclass(frozen=True, slots=True)
class Request:
    """A request that passed the server's checks."""

    path: str  # below the server's secret, where it has one
    query: Query
    headers: dict[str, str]  # by lower-case name


@dataclass(frozen=True, slots=True)
class Response:
    """What goes back to the client."""

    body: bytes
    content_type: str = "application/json"
    status: int = 200


class RequestError(Exception):
    """A request that is refused: an HTTP status and the reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status

    @property
    def response(self) -> Response:
        """The response that tells the client."""
        return Response(json.dumps({"error": str(self)}).encode(), status=self.status)


Respond = Callable[[Request], Response]


class Server:
    """Answers requests until it is stopped. `respond` is called in several threads at once."""

    def __init__(
        self,
        respond: Respond,
        host: str,
        port: int,
        *,
        methods: Sequence[str] = ("GET",),
        headers: Sequence[tuple[str, str]] = (),
        secret: str = "",
        from_anywhere: bool = False,
        limits: Limits = _LIMITS,
    ) -> None:
        """Listens from now on; OSError or OverflowError where that is not possible.

        With a `secret` only paths below /secret/ are answered; `respond` gets what follows it.
        `from_anywhere` is explained at AllowedHosts.
        """
        if not host:  # the socket would take it as all addresses
            raise OSError(errno.EINVAL, "no address is given")
        self._respond, self._methods, self._limits = respond, methods, limits
        self._secret = secret
        self._headers = (*headers, ("X-Content-Type-Options", "nosniff"))
        self._backlog = max(128, 2 * limits.connections)  # a client that finds it full waits 1 s
        self._socket = socket.create_server(
            (host, port), family=address_family(host), backlog=self._backlog
        )
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        self._allowed_hosts = AllowedHosts(host, self.port, from_anywhere)
        self._loop = asyncio.new_event_loop()
        # Without threads, an answer that is ready waits for no other thread.
        self._threads = Threads(limits.threads) if limits.threads else None
        self._places = Places(limits)
        self._started = threading.Event()
        self._reported = ""  # the last trouble of connections
        self._thread = threading.Thread(target=self._run, name="http-server", daemon=True)

    def start(self) -> None:
        """Answers from now on, in the background."""
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        """Closes all connections and stops listening."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        if self._threads is not None:
            self._threads.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(self._report)
        server = self._loop.run_until_complete(
            self._loop.create_server(
                lambda: Connection(self._answer, self._limits, self._places),
                sock=self._socket,
                backlog=_ACCEPTED_AT_ONCE,
            )
        )
        # asyncio accepts as many connections at a time as it listens for: with few, requests are
        # answered between them. The kernel's queue is longer.
        self._socket.listen(self._backlog)
        self._loop.call_soon(self._started.set)
        try:
            self._loop.run_forever()
            # No further connection. Those just accepted need an open server: asyncio would drop
            # them without closing them.
            self._loop.remove_reader(self._socket)
            self._loop.run_until_complete(self._close_connections())
            server.close()
        finally:
            self._loop.close()

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Says in a line what failed outside of a request, as accepting a connection does where
        files run short; the server goes on. The same again is not repeated.
        """
        error = context.get("exception")
        cause = getattr(error, "strerror", None) or repr(error) if error else context["message"]
        if cause != self._reported:
            self._reported = cause
            with suppress(OSError, ValueError):  # stderr may be gone
                print(f"ncclscope: a connection failed: {cause}", file=sys.stderr, flush=True)

    async def _close_connections(self) -> None:
        """Closes all, those included that were accepted last."""
        while self._places or len(asyncio.all_tasks()) > 1:
            for connection in self._places.connections():
                connection.cancel()
            await asyncio.sleep(0)

    async def _answer(self, head: bytes | None) -> tuple[bytes, bool]:
        """What to send for a request, and whether the connection stays open."""
        keep_alive, has_body = False, True
        try:
            if head is None:
                raise RequestError(431, "the request is too long")
            method, version, request = self._parse(head)
            has_body = method != "HEAD"
            if self._threads is None:
                response = self._make_response(request)
            else:
                response = await self._make_in_thread(self._threads, request)
            keep_alive = _keeps_alive(version, request.headers)
        except RequestError as error:
            response = error.response
        lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in self._headers]
        lines += [f"Content-Type: {response.content_type}", f"Content-Length: {len(response.body)}"]
        lines.append(f"Connection: {'keep-alive' if keep_alive else 'close'}")
        body = response.body if has_body else b""
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body, keep_alive

    async def _make_in_thread(self, threads: Threads, request: Request) -> Response:
        made = asyncio.Event()

        def make() -> Response:
            try:
                return self._make_response(request)
            finally:
                with suppress(RuntimeError):  # the server has stopped
                    self._loop.call_soon_threadsafe(made.set)

        task = threads.submit(make)
        while not task.is_done and not made.is_set():
            if threads.is_idle and task.take():
                raise RequestError(503, "cannot answer now: no room for a thread")
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(made.wait(), _LOOKS_FOR_THREADS_EVERY_S)
        return task.result()

    # ---- requests ----
    def _parse(self, head: bytes) -> tuple[str, str, Request]:
        """Method, HTTP version and the request; RequestError where it is not to be answered."""
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise RequestError(400, "this is not HTTP/1.1")
        method, target, version = words
        headers = _parse_headers(lines[1:])
        if not self._allowed_hosts.allows(headers.get("host", "")):
            raise RequestError(403, "this host is not served here: use the address as printed")
        if method not in self._methods:
            raise RequestError(405, f"only {' and '.join(self._methods)} is answered")
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            raise RequestError(400, "a request here has no body")
        path, query = self._parse_target(target)
        return method, version, Request(path, query, headers)

    def _parse_target(self, target: str) -> tuple[str, Query]:
        try:
            parts = urlsplit(target)
        except ValueError:  # half an IPv6 address
            raise RequestError(400, "only paths are answered") from None
        if parts.scheme or parts.netloc or not parts.path.startswith("/"):
            raise RequestError(400, "only paths are answered")
        path = self._below_secret(parts.path)
        try:
            fields = parse_qsl(parts.query, max_num_fields=self._limits.query_fields)
        except ValueError:
            raise RequestError(400, "the query is too long") from None
        return path, dict(fields)

    def _below_secret(self, path: str) -> str:
        if not self._secret:
            return path
        secret, _, rest = path[1:].partition("/")
        if not hmac.compare_digest(secret.encode(), self._secret.encode()):
            raise RequestError(403, "the address has no valid token: use the address as printed")
        return rest

    def _make_response(self, request: Request) -> Response:
        try:
            return self._respond(request)
        except RequestError:
            raise
        except NcclscopeError as error:
            raise RequestError(500, str(error)) from None
        except (OSError, MemoryError) as error:
            cause = error.strerror if isinstance(error, OSError) else "not enough memory"
            raise RequestError(503, f"cannot answer now: {cause}") from None
        except Exception as error:  # a bug must not end the server
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
            what = f"{type(error).__name__} in {where}"
            print(f"ncclscope: no answer to {request.path}: {what}: {error}", file=sys.stderr)
            raise RequestError(500, f"a mistake in ncclscope: {what}") from None


def _parse_headers(lines: Sequence[str]) -> dict[str, str]:
    """Headers by name. What a proxy may read in another way than we do is refused: requests could
    be hidden in it.
    """
    headers: dict[str, str] = {}
    for line in filter(None, lines):
        name, colon, value = line.partition(":")
        name = name.casefold()
        if not colon or not name or set(name) - _IN_NAMES:
            raise RequestError(400, "a header is not of the form name: value")
        if name in _ONCE and name in headers:
            raise RequestError(400, f"more than one {name}")
        headers[name] = value.strip()
    return headers


def _keeps_alive(version: str, headers: dict[str, str]) -> bool:
    """Whether a client sends further requests on the same connection."""
    wanted = headers.get("connection", "").casefold()
    return wanted == "keep-alive" if version == "HTTP/1.0" else wanted != "close"


def listen_error(error: OSError | OverflowError) -> str:
    """Why a server cannot listen, without the address that Python adds to the cause."""
    return (
        str(getattr(error, "strerror", None) or error)
        .partition(" (while ")[0]
        .removeprefix("bind(): ")
    )
