"""The HTTP server of `ncclscope serve`."""

import json

from ncclscope.http.allowed_hosts import netloc
from ncclscope.http.limits import Limits
from ncclscope.http.server import Request, Response, Server
from ncclscope.live.exposition import OPENMETRICS, TEXT, wants_openmetrics
from ncclscope.live.metrics_cache import MetricsCache

# Prometheus comes every few seconds with one connection. Silent clients cost a socket each, so
# there is room for a thousand of them, and they have 5 s. Texts are ready before they are
# asked for.
_LIMITS = Limits(
    connections=1200, from_address=256, for_loopback=64, request_s=5.0, response_s=10.0, threads=0
)
_PLAIN = "text/plain"


class MetricsServer:
    """Serves a cache's texts until the process ends."""

    def __init__(self, host: str, port: int, cache: MetricsCache) -> None:
        """Listens from now on; OSError or OverflowError if it cannot."""
        self._cache = cache
        self._server = Server(
            self._respond, host, port, methods=("GET", "HEAD"), from_anywhere=True, limits=_LIMITS
        )

    @property
    def url(self) -> str:
        """The address that it listens on."""
        return f"http://{netloc(self._server.host, self._server.port)}"

    def start(self) -> None:
        """Answers from now on, in the background."""
        self._server.start()

    def stop(self) -> None:
        """Closes all connections and stops listening."""
        self._server.stop()

    def _respond(self, request: Request) -> Response:
        cache, path = self._cache, "" if request.query else request.path
        if path in ("/metrics", "/status.json") and not cache.healthy:
            # Old values must not look like present ones.
            cause = cache.failure or "reading has not ended"
            return Response(f"no reading: {cause}\n".encode(), _PLAIN, 503)
        if path == "/metrics":
            accept = request.headers.get("accept", "")
            content_type = OPENMETRICS if wants_openmetrics(accept) else TEXT
            return Response(cache.texts[content_type], content_type)
        if path == "/healthz":
            return Response(b"ok\n", _PLAIN) if cache.healthy else Response(b"stuck\n", _PLAIN, 503)
        if path == "/status.json":
            return Response(json.dumps(cache.statuses).encode())
        return Response(b"/metrics, /healthz, /status.json\n", _PLAIN, 404)
