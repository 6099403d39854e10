"""Series with their values, and the rule that keeps a job's number of series bounded."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ncclscope.live.metrics import BY_NAME, FOLDABLE, OTHER, Metric


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


@dataclass(frozen=True, slots=True)
class Ratio:
    """A mean or a rate: of several together it is Σ / Σ, not a sum."""

    of: float
    by: float

    def plus(self, other: "Ratio") -> "Ratio":
        """Both together."""
        return Ratio(self.of + other.of, self.by + other.by)

    @property
    def value(self) -> float:
        """What is served."""
        return self.of / self.by if self.by else 0.0


Value = float | Histogram | Ratio
Labels = tuple[str, ...]  # in the order of the metric's own


def _sum(a: Value, b: Value) -> Value:
    if isinstance(a, float) and isinstance(b, float):  # thousands a second
        return a + b
    if isinstance(a, Histogram) and isinstance(b, Histogram):
        return a.plus(b)
    if isinstance(a, Ratio) and isinstance(b, Ratio):
        return a.plus(b)
    assert isinstance(a, (int, float))
    assert isinstance(b, (int, float))
    return a + b


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
        else:
            series[labels] = _sum(before, value)

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
        # Every metric may need one series more, for the rest, or one for each scope; and their
        # number is a series.
        here = [BY_NAME[name] for name in samples.values]
        reserve = 1 + sum(metric.series * _rests(metric) for metric in here if _foldable(metric))
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


def _rests(metric: Metric) -> int:
    return 3 if "scope" in metric.labels else 2 if "n_nodes" in metric.labels else 1


def _rest(metric: Metric, labels: Labels) -> Labels:
    return tuple(
        OTHER if name in FOLDABLE or (name == "n_nodes" and value != "1") else value
        for name, value in zip(metric.labels, labels, strict=True)
    )


def with_run(labels: Labels, run: str, host: str) -> Labels:
    """Labels behind those that every series of a job has."""
    return (run, host, *labels)
