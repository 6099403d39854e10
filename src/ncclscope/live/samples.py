"""Series with their values, and the rule that keeps a job's number of series bounded."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ncclscope.live.catalogue import BY_NAME, EVERYWHERE, FOLDABLE, OTHER, Metric


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts up to each bound of DURATION_BOUNDS_NS, of all, and the sum of durations."""

    up_to: tuple[int, ...]
    count: int
    sum_seconds: float

    def plus(self, other: "Histogram") -> "Histogram":
        """Both together."""
        up_to = tuple(a + b for a, b in zip(self.up_to, other.up_to, strict=True))
        return Histogram(up_to, self.count + other.count, self.sum_seconds + other.sum_seconds)


Value = float | Histogram
Labels = tuple[str, ...]  # in the order of the metric's own


@dataclass(slots=True)
class Samples:
    """Values by metric and labels; what comes twice is added up."""

    values: dict[str, dict[Labels, Value]] = field(default_factory=dict)

    def add(self, name: str, labels: Labels, value: Value) -> None:
        """Adds to a series."""
        series = self.values.setdefault(name, {})
        before = series.get(labels)
        if before is None:
            series[labels] = value
        elif isinstance(before, Histogram) and isinstance(value, Histogram):
            series[labels] = before.plus(value)
        elif isinstance(before, (int, float)) and isinstance(value, (int, float)):
            series[labels] = before + value

    def in_order(self) -> Iterator[tuple[Metric, Labels, Value]]:
        """All series, metrics in the catalogue's order."""
        for name, metric in BY_NAME.items():
            for labels, value in sorted(self.values.get(name, {}).items()):
                yield metric, labels, value


@dataclass(slots=True)
class Budget:
    """Which series a job has. Whoever came first stays; later ones fold into `other`.

    A series never moves between its own and `other` while it exists, or a counter would jump.
    """

    limit: int
    own: dict[tuple[str, Labels], bool] = field(default_factory=dict)  # False: folded

    def fold(self, samples: Samples) -> Samples:
        """The samples within the limit; `folded_series` says what is not."""
        present = {(m.name, labels) for m, labels, _ in samples.in_order()}
        self.own = {key: kept for key, kept in self.own.items() if key in present}
        # Every metric may need one series more, for the rest.
        reserve = sum(metric.series for metric in BY_NAME.values() if _foldable(metric))
        used = sum(BY_NAME[name].series for (name, _), kept in self.own.items() if kept)
        folded = Samples()
        count = 0
        for metric, labels, value in samples.in_order():
            key = (metric.name, labels)
            if key not in self.own:
                fits = used + metric.series <= self.limit - reserve
                self.own[key] = fits or not _foldable(metric)
                used += metric.series if self.own[key] else 0
            if self.own[key]:
                folded.add(metric.name, labels, value)
            elif metric.kind != "info":  # the rest has no name to inform about
                folded.add(metric.name, _rest(metric, labels), value)
            count += not self.own[key]
        folded.add("folded_series", (), count)
        return folded


def _foldable(metric: Metric) -> bool:
    return any(label in FOLDABLE for label in metric.labels)


def _rest(metric: Metric, labels: Labels) -> Labels:
    return tuple(
        OTHER if name in FOLDABLE else value
        for name, value in zip(metric.labels, labels, strict=True)
    )


def with_run(labels: Labels, run: str, host: str) -> Labels:
    """Labels behind those that every series of a job has."""
    assert len(EVERYWHERE) == 2
    return (run, host, *labels)
