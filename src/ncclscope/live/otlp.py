"""Sends the metrics of `ncclscope serve` to an OpenTelemetry collector, by OpenTelemetry's own SDK.

The values are those that Prometheus gets: counters are cumulative sums, durations histograms with
the same bounds. Names are Prometheus' without `_total`, which exporters of collectors add.
"""

import importlib
import logging
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from ncclscope._version import __version__
from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.live.exposition import label_names
from ncclscope.live.metrics import COUNTER, DURATION_BOUNDS_NS, INFO, Metric
from ncclscope.live.series import Histogram, Labels, Ratio, Value

_TIMEOUT_S = 10.0
_PATH = "/v1/metrics"
_LONGEST_VALUE = 200  # of an attribute, as of a label: names come from jobs
Series = list[tuple[Metric, Labels, Value]]


def otlp_endpoint(url: str) -> str:
    """The address of metrics: the collector's own, with OTLP's path if it has none."""
    try:
        parts = urllib.parse.urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        message = "cannot use --otlp: that is no http or https address"  # it may hold a secret
        raise UsageError(message, "Give the collector's, as in http://localhost:4318")
    return parts._replace(path=_PATH).geturl() if parts.path in ("", "/") else url


class OtlpExport:
    """Sends the newest series at an interval, in a thread of its own."""

    def __init__(self, url: str, interval_s: float, series: Callable[[], Series]) -> None:
        """Raises if the SDK is not installed."""
        endpoint = otlp_endpoint(url)
        try:
            http = importlib.import_module("opentelemetry.exporter.otlp.proto.http.metric_exporter")
            self._sdk: Any = importlib.import_module("opentelemetry.sdk.metrics.export")
            resources = importlib.import_module("opentelemetry.sdk.resources")
            scopes = importlib.import_module("opentelemetry.sdk.util.instrumentation")
        except ImportError as error:
            message = f"cannot export by OTLP: {error.name or 'opentelemetry'} is not installed"
            hint = "Try `pip install opentelemetry-exporter-otlp-proto-http`"
            raise NcclscopeError(message, hint) from None
        # Its messages hold addresses; what went wrong is said here.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)
        self._exporter = http.OTLPMetricExporter(endpoint=endpoint, timeout=_TIMEOUT_S)
        about = {"service.name": "ncclscope", "service.version": __version__}
        self._resource = resources.Resource(about)
        self._scope = scopes.InstrumentationScope("ncclscope", __version__)
        parts = urllib.parse.urlsplit(endpoint)
        self._name = f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"
        self._series, self._interval_s = series, interval_s
        self._began_ns = time.time_ns()
        self._failing = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="otlp", daemon=True)

    def start(self) -> None:
        """Sends from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Sends no more."""
        self._stopping.set()

    def _work(self) -> None:
        while True:
            self.send()
            if self._stopping.wait(self._interval_s):
                return

    def send(self) -> None:
        """Sends the newest series, and says when that begins to fail or works again."""
        data = self.metrics_data(self._series(), time.time_ns())
        try:
            good = self._exporter.export(data) is self._sdk.MetricExportResult.SUCCESS
        except Exception:  # the SDK's own, which differ from release to release
            good = False
        if good == self._failing:
            now = "works again" if good else "takes no metrics. It goes on trying"
            print(f"ncclscope: {self._name} {now}", file=sys.stderr, flush=True)
        self._failing = not good

    def metrics_data(self, series: Series, now_ns: int) -> Any:
        """Series as the SDK's own objects."""
        points: dict[Metric, list[Any]] = {}
        for metric, labels, value in series:
            points.setdefault(metric, []).append(self._point(metric, labels, value, now_ns))
        sdk = self._sdk
        metrics = [self._metric(metric, own) for metric, own in points.items()]
        scope = sdk.ScopeMetrics(self._scope, metrics, "")
        return sdk.MetricsData([sdk.ResourceMetrics(self._resource, [scope], "")])

    def _metric(self, metric: Metric, points: list[Any]) -> Any:
        sdk, name = self._sdk, metric.full_name
        cumulative = sdk.AggregationTemporality.CUMULATIVE
        if isinstance(points[0], sdk.HistogramDataPoint):
            data, unit = sdk.Histogram(points, cumulative), "s"
        elif metric.kind == COUNTER:
            data, unit = sdk.Sum(points, cumulative, is_monotonic=True), ""
        else:
            data, unit = sdk.Gauge(points), ""
            name += "_info" if metric.kind == INFO else ""
        return sdk.Metric(name, metric.help, unit, data)

    def _point(self, metric: Metric, labels: Labels, value: Value, now_ns: int) -> Any:
        attributes = {
            name: text[:_LONGEST_VALUE]
            for name, text in zip(label_names(metric), labels, strict=True)
        }
        if not isinstance(value, Histogram):
            number = value.value if isinstance(value, Ratio) else value
            return self._sdk.NumberDataPoint(attributes, self._began_ns, now_ns, float(number))
        ends = [0, *value.up_to, value.count]
        return self._sdk.HistogramDataPoint(
            attributes,
            self._began_ns,
            now_ns,
            count=value.count,
            sum=value.sum_seconds,
            bucket_counts=[last - first for first, last in pairwise(ends)],
            explicit_bounds=[bound / 1e9 for bound in DURATION_BOUNDS_NS],
            min=None,  # not known
            max=None,
        )
