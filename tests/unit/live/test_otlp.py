"""OTLP: what a receiver that decodes OpenTelemetry's own messages gets.

No collector is packaged for this; the receiver speaks OTLP/HTTP and decodes with opentelemetry-proto.
"""

import gzip
import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.live.metrics import BY_NAME, DURATION_BOUNDS_NS, METRICS
from ncclscope.live.otlp import OtlpExport, Series, otlp_endpoint
from ncclscope.live.series import Histogram, Ratio

service = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")


class Receiver(http.server.ThreadingHTTPServer):
    """Keeps what it got."""

    code = 200
    requests: list[tuple[str, Any]]


class Handler(http.server.BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        message = service.ExportMetricsServiceRequest.FromString(body)
        self.server.requests.append((self.path, message))
        self.send_response(self.server.code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Keeps stderr for what the export says."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver(("127.0.0.1", 0), Handler)
    server.requests = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


SERIES: Series = [
    (BY_NAME["calls"], ("job", "node0", "3", "AllReduce"), 7.0),
    (BY_NAME["hung"], ("job", "node0"), 1.0),
    (BY_NAME["busbw_bytes_per_second"], ("job", "node0", "AllReduce", "intra"), Ratio(10.0, 4.0)),
    (
        next(metric for metric in METRICS if metric.name == "operation_seconds"),
        ("job", "node0", *("x" for _ in BY_NAME["operation_seconds"].labels)),
        Histogram(tuple(range(1, len(DURATION_BOUNDS_NS) + 1)), 20, 1.5),
    ),
]


def export_to(receiver: Receiver, rest: str = "") -> OtlpExport:
    url = f"http://127.0.0.1:{receiver.server_address[1]}{rest}"
    return OtlpExport(url, 60, lambda: SERIES)


def test_a_receiver_gets_every_series_with_its_labels(receiver: Receiver) -> None:
    export_to(receiver).send()
    ((path, message),) = receiver.requests
    assert path == "/v1/metrics"
    (resource,) = message.resource_metrics
    about = {entry.key: entry.value.string_value for entry in resource.resource.attributes}
    assert about["service.name"] == "ncclscope"
    metrics = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    calls = metrics["ncclscope_calls"].sum
    assert calls.is_monotonic
    assert calls.aggregation_temporality == 2, "cumulative"
    (point,) = calls.data_points
    assert point.as_double == 7
    labels = {entry.key: entry.value.string_value for entry in point.attributes}
    assert labels == {"run": "job", "host": "node0", "rank": "3", "function": "AllReduce"}
    assert metrics["ncclscope_hung"].gauge.data_points[0].as_double == 1
    assert metrics["ncclscope_busbw_bytes_per_second"].gauge.data_points[0].as_double == 2.5


def test_a_histogram_has_the_counts_between_its_bounds(receiver: Receiver) -> None:
    export_to(receiver).send()
    ((_, message),) = receiver.requests
    metrics = message.resource_metrics[0].scope_metrics[0].metrics
    (point,) = next(
        m for m in metrics if m.name == "ncclscope_operation_seconds"
    ).histogram.data_points
    assert list(point.explicit_bounds) == [bound / 1e9 for bound in DURATION_BOUNDS_NS]
    assert list(point.bucket_counts) == [1] * len(DURATION_BOUNDS_NS) + [
        20 - len(DURATION_BOUNDS_NS)
    ]
    assert (point.count, point.sum) == (20, 1.5)
    assert not point.HasField("min")


def test_a_failure_is_said_once_without_the_address(
    receiver: Receiver, capfd: pytest.CaptureFixture[str]
) -> None:
    export = export_to(receiver, "/secret/v1/metrics")
    receiver.code = 400
    export.send()
    export.send()
    receiver.code = 200
    export.send()
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 2
    assert "takes no metrics" in said[0]
    assert "works again" in said[1]
    assert not any("secret" in line for line in said)
    assert {path for path, _ in receiver.requests} == {"/secret/v1/metrics"}


def test_addresses_are_checked() -> None:
    assert otlp_endpoint("http://localhost:4318") == "http://localhost:4318/v1/metrics"
    assert otlp_endpoint("https://host/otlp/x") == "https://host/otlp/x"
    for url in ("localhost:4318", "ftp://host", "http://", "http://h:x"):
        with pytest.raises(UsageError):
            otlp_endpoint(url)


def test_without_the_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name=name)

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(NcclscopeError, match="pip install opentelemetry"):
        OtlpExport("http://localhost:4318", 60, list)
