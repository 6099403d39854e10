"""`ncclscope serve`: reads all jobs once a second, and gives away what it read last.

Whoever asks gets a text that is ready, so clients cannot make it work, and slow ones wait for
nobody but themselves.
"""

import json
import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ncclscope.live.exposition import OPENMETRICS, TEXT, exposition, wants_openmetrics
from ncclscope.live.inspector_metrics import Window, add_inspector_names
from ncclscope.live.job_follower import FollowedJob, JobFollower
from ncclscope.live.job_metrics import PreviousReading, measure
from ncclscope.live.metrics import BY_NAME, OWN_METRICS, Metric
from ncclscope.live.series import Budget, Labels, Samples, Value, with_run
from ncclscope.live.system_metrics import Machines
from ncclscope.report.status import as_json

_MOST_CLIENTS = 32
_CLIENT_TIMEOUT_S = 10.0
_ABANDONED_S = 60.0
_STALE_S = 15.0  # without a reading for so long, /healthz says so
Series = list[tuple[Metric, Labels, Value]]
Job = tuple[Path, str]  # capture and host


@dataclass(slots=True)
class MetricsCache:
    """Reads jobs and keeps the texts that clients get."""

    following: JobFollower
    series_limit: int
    inspector_names: bool = False
    machines: Machines | None = None
    earlier: dict[Job, PreviousReading] = field(default_factory=dict)
    budgets: dict[Job, Budget] = field(default_factory=dict)
    windows: dict[Job, Window] = field(default_factory=dict)
    names: dict[Path, str] = field(default_factory=dict)  # of captures: the label `run`
    by_run: dict[str, Series] = field(default_factory=dict)
    of_machines: Series = field(default_factory=list)
    statuses: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)  # by content type
    read_at: float = 0.0  # time.monotonic

    def read(self) -> None:
        """One reading of everything."""
        began = time.monotonic()
        self.following.read()
        jobs = self.following.jobs
        for mine in (self.earlier, self.budgets, self.windows):
            for key in set(mine) - set(jobs):
                del mine[key]
        by_run: dict[str, Series] = {}
        statuses = {}
        self.names = run_names(self.names, jobs.values())
        for key, job in jobs.items():
            samples = measure(job, self.earlier.setdefault(key, PreviousReading()))
            if self.inspector_names:
                add_inspector_names(samples, job, self.windows.setdefault(key, Window()))
            kept = self.budgets.setdefault(key, Budget(self.series_limit)).fold(samples)
            run = self.names[job.capture]
            series = [(m, with_run(labels, run, job.host), v) for m, labels, v in kept.in_order()]
            by_run.setdefault(run, []).extend(series)
            if job.status:
                statuses[run] = as_json(job.status, os.path.abspath(job.capture))
        self.by_run, self.statuses = by_run, statuses
        if self.machines:
            found = self.machines.read(capture for capture, _ in jobs)
            self.of_machines = list(found.in_order())
        self.read_at = time.monotonic()
        series = in_order([one for run in by_run.values() for one in run])
        series += self.of_machines
        series += self._own(self.read_at - began)
        self.texts = {
            TEXT: exposition(series).encode(),
            OPENMETRICS: exposition(series, openmetrics=True).encode(),
        }

    def _own(self, seconds: float) -> Series:
        times = os.times()
        samples = Samples()
        samples.add("runs", (), float(len(self.following.jobs)))
        samples.add("reading_seconds", (), seconds)
        samples.add("serve_cpu_seconds", (), times.user + times.system)
        unreadable = sum(job.unreadable for job in self.following.jobs.values())
        samples.add("unreadable_processes", (), float(unreadable))
        samples.add("unreadable_captures", (), float(len(self.following.unreadable)))
        return [(metric, (), samples.values[metric.name][()]) for metric in OWN_METRICS]

    @property
    def healthy(self) -> bool:
        """Whether readings still happen."""
        return time.monotonic() - self.read_at < _STALE_S


def run_names(known: dict[Path, str], jobs: Iterable[FollowedJob]) -> dict[Path, str]:
    """Two captures may have the same name, as a requeued job's have: the later one is called by its
    path. Nobody is called otherwise while he lives, or his series would end and begin anew.
    """
    present = {job.capture: job.run for job in jobs}
    names = {capture: name for capture, name in known.items() if capture in present}
    for capture, name in present.items():
        taken = set(names.values())
        names.setdefault(capture, name if name not in taken else os.path.abspath(capture))
    return names


def in_order(series: Series) -> Series:
    """Series of one metric behind each other, in the catalogue's order."""
    place = {name: number for number, name in enumerate(BY_NAME)}
    return sorted(series, key=lambda one: place[one[0].name])


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD of the known paths."""

    server: "MetricsServer"
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "ncclscope", ""
    timeout = _CLIENT_TIMEOUT_S

    def do_GET(self) -> None:
        """Metrics, health, verdicts."""
        if not self.server.accepts(self.headers.get("Host", "")):
            self._answer(403, "text/plain", b"this Host is not served here\n")
            return
        reader = self.server.reader
        if self.path == "/metrics":
            kind = OPENMETRICS if wants_openmetrics(self.headers.get("Accept", "")) else TEXT
            self._answer(200, kind, reader.texts[kind])
        elif self.path == "/healthz":
            fine = reader.healthy
            self._answer(200 if fine else 503, "text/plain", b"ok\n" if fine else b"stuck\n")
        elif self.path == "/status.json":
            self._answer(200, "application/json", json.dumps(reader.statuses).encode())
        else:
            self._answer(404, "text/plain", b"/metrics, /healthz, /status.json\n")

    def do_HEAD(self) -> None:
        """The same without the body."""
        self.do_GET()

    def _answer(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes are nothing to talk about."""


class MetricsServer(ThreadingHTTPServer):
    """A bounded number of clients at a time."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], reader: MetricsCache) -> None:
        super().__init__(address, _Handler)
        self.reader = reader
        self._room = threading.BoundedSemaphore(_MOST_CLIENTS)
        self._loopback = self.server_address[0] in ("127.0.0.1", "::1")

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def accepts(self, host: str) -> bool:
        """Whether a request was meant for us: pages of strangers must not read it by DNS tricks."""
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        return not self._loopback or name in ("localhost", "127.0.0.1", "[::1]")

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for each client, up to a limit; who comes then is turned away."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Gives the place back, however the client ended."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no event."""


def start_server(host: str, port: int, reader: MetricsCache) -> MetricsServer:
    """A server in the background; its address is `server_address`."""
    server = MetricsServer((host, port), reader)
    threading.Thread(target=server.serve_forever, daemon=True, name="http").start()
    return server


# ---- files for node_exporter ----
def write_textfiles(
    directory: Path, reader: MetricsCache, written: set[Path], interval_s: float = 1.0
) -> set[Path]:
    """One file a job, replaced as a whole; those of jobs that are gone are removed, also where a
    `serve` that was killed left them: node_exporter would give their last values for ever.
    """
    now = set()
    failed: OSError | None = None
    parts = [*([("system", reader.of_machines)] if reader.of_machines else [])]
    parts += sorted(reader.by_run.items())
    for number, (run, series) in enumerate(parts):
        safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in run)[:100] or str(number)
        path = directory / f"ncclscope-{safe}.prom"
        if path in now:
            path = directory / f"ncclscope-{safe}-{number}.prom"
        new = path.with_suffix(".tmp")  # not *.prom: a half one must not be read
        try:
            new.write_text(exposition(in_order(series)))
            new.replace(path)
            now.add(path)
        except OSError as error:  # no values are better than those of some minutes ago
            failed = error
            for old in (new, path):
                with suppress(OSError):
                    old.unlink(missing_ok=True)
    for path in {*(written - now), *(_abandoned(directory, interval_s) - now)}:
        path.unlink(missing_ok=True)
    if failed:
        raise failed
    return now


def _abandoned(directory: Path, interval_s: float) -> set[Path]:
    """Files that nobody has written for longer than any `serve` pauses: there may be others."""
    oldest = time.time() - max(_ABANDONED_S, 10 * interval_s)
    found = set()
    for pattern in ("ncclscope-*.prom", "ncclscope-*.tmp"):
        for path in directory.glob(pattern):
            with suppress(OSError):  # another one removed it
                found |= {path} if path.lstat().st_mtime < oldest else set()
    return found
