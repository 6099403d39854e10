"""The server of one page: a secret in its address, and nothing for pages of other sites."""

import secrets
from collections.abc import Callable

from ncclscope.errors import UsageError
from ncclscope.http.allowed_hosts import netloc, reachable_hosts
from ncclscope.http.server import Query, Request, RequestError, Response, Server, listen_error

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
)
Routes = Callable[[str, Query], Response]  # path below the secret, query


class PageServer:
    """Serves one page until it is stopped."""

    def __init__(
        self, routes: Routes, host: str = "127.0.0.1", port: int = 0, policy: str = _POLICY
    ) -> None:
        self.token = secrets.token_urlsafe(24)
        self._routes = routes
        headers = (*_HEADERS, ("Content-Security-Policy", policy))
        try:
            self._server = Server(self._respond, host, port, headers=headers, secret=self.token)
        except (OSError, OverflowError) as error:
            message = f"cannot listen on {host} port {port}: {listen_error(error)}"
            hint = "Leave --port out to take a free one; --host is an address of this machine"
            raise UsageError(message, hint) from None
        self.host, self.port = host, self._server.port

    @property
    def addresses(self) -> list[str]:
        """What to open in a browser, on this machine or another; the best first."""
        hosts = [netloc(host, self.port) for host in reachable_hosts(self.host)]
        return [f"http://{host}/{self.token}/" for host in hosts]

    @property
    def address(self) -> str:
        """The best of the addresses."""
        return self.addresses[0]

    def start(self) -> None:
        """Answers from now on, in the background."""
        self._server.start()

    def stop(self) -> None:
        """Answers no more."""
        self._server.stop()

    def _respond(self, request: Request) -> Response:
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise RequestError(403, "another site asked")
        return self._routes(request.path, request.query)
