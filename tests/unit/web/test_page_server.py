"""The timeline's server: whom it answers, and that nobody keeps it from answering others."""

import contextlib
import json
import select
import socket
from collections.abc import Iterator

import pytest

from ncclscope.errors import NcclscopeError
from ncclscope.http import allowed_hosts
from ncclscope.http.server import Query, RequestError, Response
from ncclscope.web.page_server import PageServer

_LARGE = b"x" * (32 << 20)


def routes(path: str, query: Query) -> Response:
    if path == "":
        return Response(b"the page", "text/html")
    if path == "large":
        return Response(_LARGE, "application/octet-stream")
    if path == "broken":
        raise ZeroDivisionError
    if path == "echo":
        return Response(json.dumps(query).encode())
    raise RequestError(404, "there is nothing of that name")


@pytest.fixture
def server() -> Iterator[PageServer]:
    made = PageServer(routes)
    made.start()
    yield made
    made.stop()


def connect(server: PageServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def ask(
    server: PageServer, path: str, host: str | None = None, *more: str, method: str = "GET"
) -> tuple[int, bytes]:
    """Status and body of one request."""
    head = [f"{method} {path} HTTP/1.1", f"Host: {host or f'127.0.0.1:{server.port}'}", *more]
    with connect(server) as link:
        link.sendall("\r\n".join([*head, "Connection: close", "", ""]).encode())
        data = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := link.recv(1 << 16):
                data += piece
    return int(data.split(b" ", 2)[1]), data.partition(b"\r\n\r\n")[2]


def test_the_address_that_was_printed_is_answered(server: PageServer) -> None:
    assert server.address == f"http://127.0.0.1:{server.port}/{server.token}/"
    assert ask(server, f"/{server.token}/") == (200, b"the page")
    assert len(server.token) >= 32


def test_only_this_machine_can_reach_it(server: PageServer) -> None:
    assert server._server._socket.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "localhost.evil.example:{port}",
        "",
    ],
)
def test_other_hosts_are_refused(server: PageServer, host: str) -> None:
    """A page of another site whose name resolves to 127.0.0.1 sends its own name."""
    name = host.format(port=server.port) or " "
    assert ask(server, f"/{server.token}/", name)[0] == 403


def test_names_of_this_machine_are_not(server: PageServer) -> None:
    assert ask(server, f"/{server.token}/", f"localhost:{server.port}")[0] == 200


@pytest.fixture
def public() -> Iterator[PageServer]:
    made = PageServer(routes, "0.0.0.0")
    made.start()
    yield made
    made.stop()


def own_addresses() -> list[str]:
    """Of this machine, as many as can be found."""
    default = allowed_hosts._default_address(socket.AF_INET)
    return [*([default] if default else []), "127.0.0.1", "127.0.0.2"]


def test_asked_to_listen_everywhere_it_answers_to_all_its_names(public: PageServer) -> None:
    full, short = socket.getfqdn(), socket.gethostname()
    for name in (
        *own_addresses(),
        "localhost",
        full,
        short,
        short.upper(),
        short.partition(".")[0],
    ):
        assert ask(public, f"/{public.token}/", f"{name}:{public.port}")[0] == 200, name


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:{port}",
        "203.0.113.9:{port}",  # an address, of somebody else
        "{name}.evil.example:{port}",
        "{name}:1",
        "{name}",
        "[::1:{port}",
        "::1:{port}",
        "[evil.example]:{port}",
        "127.0.0.1.evil.example:{port}",
        "{name}:{huge}",
        ":{port}",
    ],
)
def test_asked_to_listen_everywhere_it_still_refuses_others(public: PageServer, host: str) -> None:
    name = host.format(port=public.port, name=socket.gethostname(), huge="9" * 5_000)
    assert ask(public, f"/{public.token}/", name)[0] == 403


def test_on_loopback_only_names_of_loopback_count(server: PageServer) -> None:
    for name in (socket.gethostname(), *own_addresses()[:-2]):
        assert ask(server, f"/{server.token}/", f"{name}:{server.port}")[0] == 403, name


def test_addresses_that_are_printed_lead_there_from_elsewhere(public: PageServer) -> None:
    assert all("0.0.0.0" not in address for address in public.addresses)
    for address in public.addresses:
        host, port = address.split("/")[2].split(":")
        with socket.create_connection((host, int(port)), timeout=60) as link:
            head = f"GET /{public.token}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"
            link.sendall(head.encode())
            assert link.recv(100).startswith(b"HTTP/1.1 200"), address


@pytest.mark.parametrize(
    "path", ["/", "/x/", "/{half}/", "/{token}x/", "//{token}/", "/?token={token}"]
)
def test_without_the_token_nothing_is_told(server: PageServer, path: str) -> None:
    target = path.format(token=server.token, half=server.token[:16])
    status, body = ask(server, target)
    assert status in (400, 403)
    assert server.token.encode() not in body
    assert b"page" not in body


@pytest.mark.parametrize(
    "path",
    [
        "../server.py",
        "..%2fserver.py",
        "static/app.js",
        "app.js/../../x",
        "%2e%2e/x",
        "/etc/passwd",
        "api",
        "\\..\\x",
    ],
)
def test_only_known_paths_are_served(server: PageServer, path: str) -> None:
    assert ask(server, f"/{server.token}/{path}")[0] == 404


def test_requests_have_limits(server: PageServer) -> None:
    assert ask(server, f"/{server.token}/echo?q=" + "x" * 20_000)[0] == 431
    fields = "&".join(f"a{n}=1" for n in range(100))
    assert ask(server, f"/{server.token}/echo?{fields}")[0] == 400
    assert (
        ask(server, f"/{server.token}/", None, *(f"X-{n}: {'y' * 200}" for n in range(200)))[0]
        == 431
    )


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD"])
def test_only_get_is_answered(server: PageServer, method: str) -> None:
    assert ask(server, f"/{server.token}/", method=method)[0] == 405


def test_bodies_and_other_sites_are_refused(server: PageServer) -> None:
    path = f"/{server.token}/"
    assert ask(server, path, None, "Content-Length: 5")[0] == 400
    assert ask(server, path, None, "Transfer-Encoding: chunked")[0] == 400
    assert ask(server, path, None, "Sec-Fetch-Site: cross-site")[0] == 403
    assert ask(server, path, None, f"Host: 127.0.0.1:{server.port}")[0] == 400
    assert ask(server, f"http://127.0.0.1:{server.port}{path}")[0] == 400


@pytest.mark.parametrize(
    "words", [b"\0\xff\r\n\r\n", b"GET\r\n\r\n", b"GET / FTP/1\r\n\r\n", b"\r\n\r\n"]
)
def test_what_is_not_http_is_refused(server: PageServer, words: bytes) -> None:
    with connect(server) as link:
        link.sendall(words)
        assert link.recv(100).startswith(b"HTTP/1.1 400")
    assert ask(server, f"/{server.token}/")[0] == 200


def test_slow_and_silent_clients_do_not_stop_it(server: PageServer) -> None:
    links = [connect(server) for _ in range(400)]  # more than it holds
    try:
        for number, link in enumerate(links):
            with contextlib.suppress(OSError):
                link.sendall(
                    b"GET /" if number % 2 else f"GET /{server.token}/large HTTP/1.1\r\nHo".encode()
                )
        assert ask(server, f"/{server.token}/") == (200, b"the page")
        given_up, _, _ = select.select(links, [], [], 0)
        assert len(given_up) < len(links), "the answer came while it held others"
    finally:
        for link in links:
            link.close()


def test_a_client_that_does_not_read_does_not_stop_it(server: PageServer) -> None:
    links = [connect(server) for _ in range(8)]
    try:
        for link in links:
            host = f"127.0.0.1:{server.port}"
            link.sendall(f"GET /{server.token}/large HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert ask(server, f"/{server.token}/") == (200, b"the page")
    finally:
        for link in links:
            link.close()


def test_a_mistake_of_ours_is_one_answer(
    server: PageServer, capsys: pytest.CaptureFixture[str]
) -> None:
    status, body = ask(server, f"/{server.token}/broken")
    assert status == 500
    assert b"ZeroDivisionError" in body
    assert b"Traceback" not in body
    assert "no answer to broken" in capsys.readouterr().err
    assert ask(server, f"/{server.token}/")[0] == 200


def test_answers_forbid_everything_else(server: PageServer) -> None:
    with connect(server) as link:
        link.sendall(
            f"GET /{server.token}/ HTTP/1.1\r\nHost: localhost:{server.port}\r\n\r\n".encode()
        )
        head = link.recv(4096).decode()
    assert "default-src 'none'" in head
    assert "unsafe-inline" not in head
    assert "X-Content-Type-Options: nosniff" in head
    assert "Referrer-Policy: no-referrer" in head
    assert "Access-Control" not in head


def test_a_port_that_is_taken_is_one_sentence(server: PageServer) -> None:
    with pytest.raises(NcclscopeError, match=r"cannot listen on 127\.0\.0\.1"):
        PageServer(routes, port=server.port)
