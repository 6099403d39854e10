"""The HTTP server: methods, connections, what a handler gets and returns."""

import _thread
import gc
import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from ncclscope.errors import NcclscopeError
from ncclscope.http.limits import Limits
from ncclscope.http.server import Request, RequestError, Response, Server
from tests.support.waiting import eventually


def raising(error: Exception) -> Callable[..., int]:
    def fail(*_: object) -> int:
        raise error

    return fail


def respond(request: Request) -> Response:
    if request.path == "/echo":
        body = {"query": request.query, "accept": request.headers.get("accept")}
        return Response(json.dumps(body).encode())
    if request.path == "/busy":
        return Response(b"stuck\n", "text/plain", 503)
    if request.path == "/failed":
        raise NcclscopeError("cannot read x", "Name another")
    raise RequestError(404, "there is nothing of that name")


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(
        respond,
        "127.0.0.1",
        0,
        methods=("GET", "HEAD"),
        limits=Limits(connections=4, request_s=600),
    )
    made.start()
    yield made
    made.stop()


def connect(server: Server) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)


def test_a_connection_takes_several_requests(server: Server) -> None:
    link = connect(server)
    for number in range(3):
        link.request("GET", f"/echo?n={number}", headers={"Accept": "text/plain"})
        answer = link.getresponse()
        assert json.loads(answer.read()) == {"query": {"n": str(number)}, "accept": "text/plain"}
    link.close()


def test_head_has_the_same_headers_and_no_body(server: Server) -> None:
    link = connect(server)
    link.request("HEAD", "/busy")
    answer = link.getresponse()
    assert (answer.status, answer.getheader("Content-Length"), answer.read()) == (503, "6", b"")
    link.request("GET", "/busy")
    assert link.getresponse().read() == b"stuck\n"
    link.close()


def test_refusals_and_errors_are_json(server: Server) -> None:
    link = connect(server)
    for path, status, error in (
        ("/x", 404, "there is nothing of that name"),
        ("/failed", 500, "cannot read x. Name another"),
    ):
        link.request("GET", path)
        answer = link.getresponse()
        assert (answer.status, json.loads(answer.read())) == (status, {"error": error})
    link.request("POST", "/echo")
    assert link.getresponse().status == 405
    link.close()


def test_a_client_of_http_1_0_sees_the_end_of_the_connection(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        link.sendall(f"GET /busy HTTP/1.0\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        data = b""
        while piece := link.recv(1 << 12):
            data += piece
    assert data.endswith(b"stuck\n")


def test_when_all_connections_are_taken_the_longest_silent_one_is_closed(server: Server) -> None:
    silent = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(8)]
    link = connect(server)
    link.request("GET", "/echo")
    assert link.getresponse().status == 200
    assert silent[0].recv(1) == b""
    link.close()
    for one in silent:
        one.close()


def test_half_an_address_is_refused(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        link.sendall(b"GET //[ HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % server.port)
        assert link.recv(100).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "lines",
    [
        "Host : evil",
        "Content-Length: 50\r\nContent-Length: 0",
        "X: a\r\n Content-Length: 50",
        "X\0Y: 1",
        "Transfer-Encoding\t: chunked",
        ": nothing",
        "no colon",
    ],
)
def test_headers_that_a_proxy_may_read_in_another_way_are_refused(
    server: Server, lines: str
) -> None:
    """Between a proxy and us a second request could be hidden in them."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        head = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n{lines}\r\n\r\n"
        link.sendall(head.encode())
        assert link.recv(100).startswith(b"HTTP/1.1 400 ")


def trickle(link: socket.socket) -> None:
    """Sends a byte long before each deadline, until the server has enough of it."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        time.sleep(0.05)
        link.sendall(b"E")


def test_a_request_that_trickles_has_one_deadline() -> None:
    made = Server(respond, "127.0.0.1", 0, limits=Limits(request_s=0.5))
    made.start()
    try:
        with socket.create_connection(("127.0.0.1", made.port), timeout=60) as link:
            link.sendall(b"G")
            with pytest.raises(ConnectionError):
                trickle(link)
    finally:
        made.stop()


def test_scrapes_are_answered_beside_many_silent_clients() -> None:
    # Nobody is silent for too long: the scrapes do not wait for that.
    made = Server(respond, "127.0.0.1", 0, limits=Limits(connections=100, request_s=600))
    made.start()
    silent = [socket.create_connection(("127.0.0.1", made.port), timeout=60) for _ in range(150)]
    try:
        for link in silent[::2]:
            link.send(b"GET / HT")
        for _ in range(3):
            scrape = connect(made)
            scrape.request("GET", "/busy")
            assert scrape.getresponse().status == 503
            scrape.close()
    finally:
        for link in silent:
            link.close()
        made.stop()


def test_requests_that_come_together_are_answered_in_order(server: Server) -> None:
    requests = b"".join(
        b"GET /echo?n=%d HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % (number, server.port)
        for number in range(3)
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        link.sendall(requests[:-10])
        link.sendall(requests[-10:])
        link.shutdown(socket.SHUT_WR)  # the client waits for what it asked for
        received = b""
        while piece := link.recv(1 << 16):
            received += piece
    places = [received.index(b'"n": "%d"' % number) for number in range(3)]
    assert places == sorted(places)


def test_a_server_that_is_stopped_beside_clients_says_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    made = Server(respond, "127.0.0.1", 0, limits=Limits(connections=100))
    made.start()
    links = [socket.create_connection(("127.0.0.1", made.port)) for _ in range(60)]
    assert eventually(lambda: len(made._places) == len(links))
    made.stop()
    for link in links:
        link.close()
    gc.collect()
    assert capfd.readouterr().err == ""


def test_connections_accepted_while_the_server_stops_are_closed() -> None:
    """The loop finds new clients and the order to stop at the same time."""
    made = Server(respond, "127.0.0.1", 0, limits=Limits(threads=0))
    made.start()
    links: list[socket.socket] = []

    def connect_and_stop() -> None:  # in the loop: it accepts nothing meanwhile
        address = ("127.0.0.1", made.port)
        links.extend(socket.create_connection(address, timeout=5) for _ in range(3))
        made._loop.call_soon(made._loop.stop)

    made._loop.call_soon_threadsafe(connect_and_stop)
    made._thread.join()
    for link in links:
        assert link.recv(1) == b"", "closed: a client does not wait for what nobody sends"
        link.close()


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), MemoryError()])
def test_an_answer_that_cannot_be_made_now_is_503(error: Exception) -> None:
    def fail(request: Request) -> Response:
        raise error

    made = Server(fail, "127.0.0.1", 0)
    made.start()
    link = connect(made)
    for _ in range(2):  # and the connection stays
        link.request("GET", "/")
        answer = link.getresponse()
        assert answer.status == 503
        assert b"cannot answer now" in answer.read()
    link.close()
    made.stop()


@pytest.mark.parametrize("begins", [raising(RuntimeError("can't start new thread")), lambda *_: 1])
def test_without_a_thread_there_is_an_answer(
    begins: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where threads start, and end before their first instruction."""
    made = Server(respond, "127.0.0.1", 0)
    made.start()
    link = connect(made)
    with monkeypatch.context() as patch:
        patch.setattr(_thread, "start_new_thread", begins)
        link.request("GET", "/echo")
        answer = link.getresponse()
        assert answer.status == 503
        assert b"no room for a thread" in answer.read()
    link.request("GET", "/echo")
    assert link.getresponse().status == 200
    link.close()
    made.stop()


def test_what_fails_outside_of_a_request_is_said_once(
    server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        server._loop.call_soon_threadsafe(raising(OSError(23, "Too many open files in system")))
    link = connect(server)
    link.request("GET", "/echo")
    assert link.getresponse().status == 200
    link.close()
    said = capfd.readouterr().err
    assert said == "ncclscope: a connection failed: Too many open files in system\n"


def test_no_address_is_not_all_addresses() -> None:
    with pytest.raises(OSError, match="no address is given"):
        Server(respond, "", 0)
