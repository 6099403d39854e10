"""`serve --otlp` against a receiver of somebody else: does it hold what Prometheus would scrape?

The receiver is VictoriaMetrics, of which newer releases of Debian have a package. `--receiver` is
its command, for example `chroot DIR victoria-metrics` where only another system has it.
`--collector` puts an OpenTelemetry Collector between the two: its command, which gets `--config`
and a file below /tmp. otel_collector.go is one.
"""

import argparse
import json
import math
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks.loads import scratch
from benchmarks.results import publish, table
from ncclscope.simulation.scenario import Call, Communicators, Scenario
from ncclscope.simulation.scenario_files import toml_text
from tests.support.metrics_server import fetch, serving

JOB = Scenario(
    name="otlp",
    ranks=4,
    steps=100_000,
    compute_ms=20,
    communicators=(Communicators("world"), Communicators("tp", 2)),
    calls=(Call("tp", "AllReduce", 1 << 20), Call("world", "AllGather", 1 << 18, "bfloat16")),
)
PATIENCE_S = 180.0
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
SeriesKey = tuple[str, frozenset[tuple[str, str]]]


def _key(name: str, labels: dict[str, str]) -> SeriesKey:
    """A series' name and labels; bounds of histograms as numbers, empty labels as none."""
    labels = {name: text for name, text in labels.items() if text}
    if "le" in labels:
        labels = {**labels, "le": repr(float(labels["le"].replace("+Inf", "inf")))}
    return name, frozenset(labels.items())


def _scraped(text: str) -> dict[SeriesKey, float]:
    """Values by series, of a page of metrics."""
    matches = (_SAMPLE.match(line) for line in text.splitlines())
    return {_key(m[1], dict(_LABEL.findall(m[2] or ""))): float(m[3]) for m in matches if m}


@contextmanager
def _receiver(command: list[str]) -> Iterator[str]:
    """The address of a receiver."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    words = [f"-storageDataPath=/tmp/ncclscope-otlp-{port}", f"-httpListenAddr=127.0.0.1:{port}"]
    words += ["-opentelemetry.usePrometheusNaming", "-loggerLevel=WARN"]
    running = subprocess.Popen([*command, *words])
    address = f"http://127.0.0.1:{port}"
    try:
        _wait(lambda: fetch(f"{address}/health")[0] == 200)
        yield address
    finally:
        running.terminate()
        running.wait(60)


@contextmanager
def _collector(command: list[str], receiver: str) -> Iterator[str]:
    """The address of a collector that passes on to the receiver what it gets; without a command,
    the receiver's own.
    """
    if not command:
        yield f"{receiver}/opentelemetry/v1/metrics"
        return
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    settings = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
        "processors": {"batch": {"timeout": "200ms"}},
        "exporters": {"otlphttp": {"metrics_endpoint": f"{receiver}/opentelemetry/v1/metrics"}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "warn"}},
            "pipelines": {
                "metrics": {
                    "receivers": ["otlp"], "processors": ["batch"], "exporters": ["otlphttp"],
                }
            },
        },
    }  # fmt: skip
    with tempfile.NamedTemporaryFile("w", dir="/tmp", suffix=".yaml") as file:
        json.dump(settings, file)  # YAML takes JSON
        file.flush()
        running = subprocess.Popen([*command, "--config", file.name])
        try:
            _wait(lambda: socket.create_connection(("127.0.0.1", port), 1).close() is None)
            yield f"http://127.0.0.1:{port}/v1/metrics"
        finally:
            running.terminate()
            running.wait(60)


def _wait(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            if condition():
                return
        except OSError:
            pass
        time.sleep(0.5)
    raise SystemExit("the receiver did not answer in time")


def _received(address: str) -> dict[SeriesKey, float]:
    """Values by series that the receiver holds."""
    query = urllib.parse.urlencode({"query": '{__name__=~"ncclscope_.*"}', "latency_offset": "1ms"})
    with urllib.request.urlopen(f"{address}/api/v1/query?{query}", timeout=60) as answer:
        results = json.load(answer)["data"]["result"]
    own = ("__name__", "service_name", "service_version", "scope_name", "scope_version")
    values = {}
    for result in results:
        labels = {name: text for name, text in result["metric"].items() if name not in own}
        values[_key(result["metric"]["__name__"], labels)] = float(result["value"][1])
    return values


def _compare(
    expected: dict[SeriesKey, float], received: dict[SeriesKey, float]
) -> list[list[object]]:
    """A row for each metric: series, equal ones, others, missing ones."""
    rows: dict[str, list[int]] = {}
    for key, number in expected.items():
        counts = rows.setdefault(re.sub(r"_(bucket|count|sum)$", "", key[0]), [0, 0, 0, 0])
        counts[0] += 1
        if key not in received:
            counts[3] += 1
        elif math.isclose(received[key], number, rel_tol=1e-9):
            counts[1] += 1
        else:
            counts[2] += 1
    return [[f"`{name}`", *counts] for name, counts in sorted(rows.items())]


def main() -> None:
    """A job that stands still is served; both sides are asked."""
    parser = argparse.ArgumentParser(description="serve --otlp against VictoriaMetrics.")
    parser.add_argument("--receiver", default="victoria-metrics", metavar="COMMAND")
    parser.add_argument("--collector", default="", metavar="COMMAND")
    given = parser.parse_args()
    collector = shlex.split(given.collector)
    with (
        scratch() as directory,
        _receiver(shlex.split(given.receiver)) as address,
        _collector(collector, address) as otlp,
    ):
        capture, file = directory / "capture", directory / "job.toml"
        file.write_text(toml_text(JOB))
        words = ["-m", "ncclscope", "run", "-o", str(capture), "--mode", "profile", "--"]
        job = subprocess.Popen(
            [sys.executable, *words, sys.executable, "-m", "ncclscope.simulation", str(file)],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            _wait(lambda: len(list(capture.glob("*/live"))) == JOB.ranks)
            time.sleep(10)
            os.killpg(job.pid, signal.SIGSTOP)  # values that do not change can be compared
            with serving(capture, "--otlp", otlp, "--otlp-interval", "1") as served:
                first = _scraped(fetch(f"{served}/metrics")[2])
                _wait(lambda: len(_received(address)) > 0)
                time.sleep(5)
                received, last = _received(address), _scraped(fetch(f"{served}/metrics")[2])
        finally:
            os.killpg(job.pid, signal.SIGCONT)
            os.killpg(job.pid, signal.SIGTERM)
            job.wait()
    constant = {key: number for key, number in last.items() if first.get(key) == number}
    rows = _compare(constant, received)
    header = ["metric", "series", "equal", "different", "missing"]
    sums = [sum(int(str(row[place])) for row in rows) for place in range(1, 5)]
    rows.append(["**all**", *sums])
    note = (
        f"Of {len(last)} values that a scrape of `serve` has, the {len(constant)} that did not "
        "change meanwhile, against what VictoriaMetrics holds after `serve --otlp`"
        f"{' to an OpenTelemetry Collector' if collector else ''}. Bar: all equal."
    )
    publish("otlp", f"{table(header, rows)}\n\n{note}")
    if sums[2] or sums[3]:
        raise SystemExit(f"{sums[2]} different, {sums[3]} missing")


if __name__ == "__main__":
    main()
