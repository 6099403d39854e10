"""Metrics as text: Prometheus' text format 0.0.4, or OpenMetrics 1.0 if a client asks for it."""

from collections.abc import Iterable
from functools import lru_cache

from ncclscope.live.metrics import (
    COUNTER,
    DURATION_BOUNDS_NS,
    EVERYWHERE,
    GAUGE,
    INFO,
    OWN_METRICS,
    SYSTEM_METRICS,
    Metric,
)
from ncclscope.live.series import Histogram, Labels, Ratio, Value

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_SUFFIXES = {COUNTER: "_total", INFO: "_info"}
_WITHOUT_JOB = {metric.name for metric in (*OWN_METRICS, *SYSTEM_METRICS)}
_LONGEST_VALUE = 200  # of a label: names come from jobs


# Labels are the same from second to second.
_cache_for_labels = lru_cache(maxsize=1 << 14)


def wants_openmetrics(accept: str) -> bool:
    """Whether an Accept header prefers OpenMetrics to text."""
    best = {"application/openmetrics-text": 0.0, "text/plain": 0.0, "*/*": 0.0}
    for part in accept.split(","):
        kind, *parameters = (word.strip() for word in part.split(";"))
        if kind in best:
            weights = [p[2:] for p in parameters if p.startswith("q=")]
            try:
                weight = float(weights[0]) if weights else 1.0
            except ValueError:
                weight = 0.0
            best[kind] = max(best[kind], weight)
    return best["application/openmetrics-text"] > max(best["text/plain"], 0.0)


@_cache_for_labels
def escape_label(value: str) -> str:
    """A label's value in the text format: cut to 200 characters, control characters replaced."""
    printable = "".join(
        c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in value
    )
    return printable[:_LONGEST_VALUE].translate(_ESCAPES)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e17 else repr(float(value))


@_cache_for_labels
def _labels(names: Labels, values: Labels, *extra: str) -> str:
    pairs = [f'{name}="{escape_label(value)}"' for name, value in zip(names, values, strict=True)]
    inside = ",".join([*pairs, *extra])
    return f"{{{inside}}}" if inside else ""


def label_names(metric: Metric) -> Labels:
    """Names of all labels of a metric's series."""
    return metric.labels if metric.name in _WITHOUT_JOB else (*EVERYWHERE, *metric.labels)


def _lines(metric: Metric, labels: Labels, value: Value) -> Iterable[str]:
    names, full = label_names(metric), metric.full_name
    if isinstance(value, Histogram):
        bounds = [repr(bound / 1e9) for bound in DURATION_BOUNDS_NS]
        for bound, count in zip([*bounds, "+Inf"], [*value.up_to, value.count], strict=True):
            within = f'le="{bound}"'
            yield f"{full}_bucket{_labels(names, labels, within)} {count}"
        yield f"{full}_count{_labels(names, labels)} {value.count}"
        yield f"{full}_sum{_labels(names, labels)} {_number(value.sum_seconds)}"
        return
    number = value.value if isinstance(value, Ratio) else value
    yield f"{full}{_SUFFIXES.get(metric.kind, '')}{_labels(names, labels)} {_number(number)}"


def _head(metric: Metric, openmetrics: bool) -> list[str]:
    kind, name = metric.kind, metric.full_name
    if not openmetrics:  # the text format has no info, and names counters with their _total
        name += _SUFFIXES.get(kind, "")
        kind = GAUGE if kind == INFO else kind
    return [f"# HELP {name} {metric.help}", f"# TYPE {name} {kind}"]


def exposition(series: Iterable[tuple[Metric, Labels, Value]], openmetrics: bool = False) -> str:
    """The text of a page of metrics; series of one metric must follow each other."""
    lines: list[str] = []
    current: Metric | None = None
    for metric, labels, value in series:
        if metric is not current:
            lines += _head(metric, openmetrics)
            current = metric
        lines += _lines(metric, labels, value)
    if openmetrics:
        lines.append("# EOF")
    return "\n".join(lines) + "\n"
