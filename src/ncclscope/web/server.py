"""A small HTTP server for one page: loopback, a secret path, known answers, limits on everything.

Each connection is a coroutine, so slow or silent clients cost a socket and nothing else; answers
are made in threads.
"""

import asyncio
import hmac
import json
import secrets
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from ncclscope.errors import NcclscopeError
from ncclscope.web.allowed_hosts import Names, family_of, in_url, reachable

_LONGEST_REQUEST = 16 << 10  # bytes of a request's head
_MOST_FIELDS = 32  # of a query
_MOST_CONNECTIONS = 256
_REQUEST_S, _ANSWER_S, _IDLE_S = 10.0, 30.0, 30.0
_THREADS = 4
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
)
_REASONS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found"}
_REASONS |= {405: "Method Not Allowed", 409: "Conflict", 414: "URI Too Long"}
_REASONS |= {431: "Request Header Fields Too Large", 500: "Internal Server Error"}
_REASONS |= {503: "Service Unavailable"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back."""

    body: bytes
    kind: str = "application/json"
    status: int = 200


class Refused(Exception):  # noqa: N818
    """A request that is not answered, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


Query = dict[str, str]
Handler = Callable[[str, Query], Answer]  # path below the secret, query


class Server:
    """Serves one page until it is stopped."""

    def __init__(
        self, handler: Handler, host: str = "127.0.0.1", port: int = 0, policy: str = _POLICY
    ) -> None:
        self.token = secrets.token_urlsafe(24)
        self._fields = (*_HEADERS, ("Content-Security-Policy", policy))
        self._handler, self.host = handler, host
        self._socket = _bound(host, port)
        self.port: int = self._socket.getsockname()[1]
        self._names = Names(host, self.port)
        self._loop = asyncio.new_event_loop()
        self._pool = ThreadPoolExecutor(_THREADS, "timeline-answer")
        self._open: dict[asyncio.Task[None], None] = {}  # who spoke last is last
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="timeline-server", daemon=True)

    @property
    def addresses(self) -> list[str]:
        """What to open in a browser, wherever it is; the first is the surest."""
        places = [in_url(host, self.port) for host in reachable(self.host)]
        return [f"http://{place}/{self.token}/" for place in places]

    @property
    def address(self) -> str:
        """The surest of them."""
        return self.addresses[0]

    def start(self) -> None:
        """Answers from now on."""
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        """Answers no more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._accept, sock=self._socket, limit=_LONGEST_REQUEST)
        )
        self._loop.call_soon(self._started.set)
        try:
            self._loop.run_forever()
            server.close()
            for task in list(self._open):
                task.cancel()
            self._loop.run_until_complete(_ended(list(self._open)))
        finally:
            self._loop.close()

    # ---- connections ----
    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._open) >= _MOST_CONNECTIONS:  # the longest silent one makes room
            next(iter(self._open)).cancel()
        self._open[task] = None
        try:
            while await self._one(reader, writer):
                self._open.pop(task, None)  # now it is the one that spoke last
                self._open[task] = None
        except (
            asyncio.TimeoutError,
            asyncio.IncompleteReadError,
            asyncio.CancelledError,
            ConnectionError,
            OSError,
        ):
            pass
        finally:
            self._open.pop(task, None)
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Reads and answers one request; whether the connection goes on."""
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _REQUEST_S)
        except asyncio.LimitOverrunError:
            await self._send(writer, _refusal(Refused(431, "the request is too long")), False)
            return False
        goes_on = True
        try:
            path, query, fields = self._checked(head)
            goes_on = fields.get("connection", "").casefold() != "close"
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(self._pool, self._answer, path, query)
        except Refused as refused:
            answer, goes_on = _refusal(refused), False
        await self._send(writer, answer, goes_on)
        return goes_on

    async def _send(self, writer: asyncio.StreamWriter, answer: Answer, goes_on: bool) -> None:
        lines = [f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}"]
        lines += [f"{name}: {value}" for name, value in self._fields]
        lines += [f"Content-Type: {answer.kind}", f"Content-Length: {len(answer.body)}"]
        lines.append(f"Connection: {'keep-alive' if goes_on else 'close'}")
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + answer.body)
        await asyncio.wait_for(writer.drain(), _ANSWER_S)
        if not goes_on:
            writer.write_eof()

    # ---- requests ----
    def _checked(self, head: bytes) -> tuple[str, Query, dict[str, str]]:
        """Path below the secret, query and header fields of a request that may be answered."""
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise Refused(400, "this is not HTTP/1.1")
        fields: dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if colon:
                if name.casefold() == "host" and "host" in fields:
                    raise Refused(400, "more than one Host")
                fields[name.strip().casefold()] = value.strip()
        if not self._names.mean_us(fields.get("host", "")):
            raise Refused(403, "this host is not served here: use the address that was printed")
        if fields.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise Refused(403, "another site asked")
        if words[0] != "GET":
            raise Refused(405, "only GET is answered")
        if fields.get("content-length", "0") != "0" or "transfer-encoding" in fields:
            raise Refused(400, "a request here has no body")
        path, query = self._below_token(words[1])
        return path, query, fields

    def _below_token(self, target: str) -> tuple[str, Query]:
        parts = urlsplit(target)
        if parts.scheme or parts.netloc or not parts.path.startswith("/"):
            raise Refused(400, "only paths are answered")
        token, _, path = parts.path[1:].partition("/")
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            raise Refused(403, "the address has no valid token: use the one that was printed")
        try:
            query = dict(parse_qsl(parts.query, max_num_fields=_MOST_FIELDS))
        except ValueError:
            raise Refused(400, "the query is too long") from None
        return path, query

    def _answer(self, path: str, query: Query) -> Answer:
        try:
            return self._handler(path, query)
        except NcclscopeError as error:
            raise Refused(500, str(error)) from None
        except Refused:
            raise
        except Exception as error:  # a mistake of ours must not end the page
            what = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{what.filename.rpartition('/')[2]}:{what.lineno}"
            told = f"{type(error).__name__} in {place}"
            print(f"ncclscope: no answer to {path}: {told}: {error}", file=sys.stderr)
            raise Refused(500, f"a mistake in ncclscope: {told}") from None


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def _refusal(refused: Refused) -> Answer:
    body = json.dumps({"error": str(refused)}).encode()
    return Answer(body, status=refused.status)


def _bound(host: str, port: int) -> socket.socket:
    """A socket that listens."""
    try:
        made = socket.create_server((host, port), family=family_of(host), backlog=128)
    except (OSError, OverflowError) as error:
        # Python adds the address to the cause, which is there already.
        cause = str(getattr(error, "strerror", None) or error).partition(" (while ")[0]
        hint = "Leave --port out to take a free one; --host is an address of this machine"
        raise NcclscopeError(f"cannot listen on {host} port {port}: {cause}", hint) from None
    return made
