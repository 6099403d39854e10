"""Series with their values, and the limit on a job's number of series."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ncclscope.live.metrics import BY_NAME, FOLDABLE, OTHER, Metric


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts up to each of DURATION_BOUNDS_NS, the count of all, and the sum of durations."""

    up_to: tuple[int, ...]
    count: int
    sum_seconds: float

    def plus(self, other: "Histogram") -> "Histogram":
        """The histogram of both."""
        up_to = tuple(a + b for a, b in zip(self.up_to, other.up_to, strict=True))
        return Histogram(up_to, self.count + other.count, self.sum_seconds + other.sum_seconds)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A mean or a rate. Several of them combine as sum / sum: a sum of ratios means nothing."""

    numerator: float
    denominator: float

    def plus(self, other: "Ratio") -> "Ratio":
        """The ratio of both."""
        return Ratio(self.numerator + other.numerator, self.denominator + other.denominator)

    @property
    def value(self) -> float:
        """The quotient; 0 if nothing was counted."""
        return self.numerator / self.denominator if self.denominator else 0.0


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
    """Values by metric and labels; values of the same series are added up."""

    values: dict[str, dict[Labels, Value]] = field(default_factory=dict)

    def add(self, name: str, labels: Labels, value: Value) -> None:
        """Adds a value to a series."""
        series = self.values.setdefault(name, {})
        before = series.get(labels)
        if before is None:
            series[labels] = value
        else:
            series[labels] = _sum(before, value)

    def in_order(self) -> Iterator[tuple[Metric, Labels, Value]]:
        """All series, metrics in the order of `METRICS`."""
        for name, metric in BY_NAME.items():
            for labels, value in sorted(self.values.get(name, {}).items()):
                yield metric, labels, value


@dataclass(slots=True)
class SeriesLimit:
    """Limits a job's number of series: the first ones stay, later ones are folded into `other`.

    A series stays what it is, its own or part of `other`, as long as it exists. Otherwise the
    counter of `other` would jump.
    """

    limit: int
    is_own: dict[tuple[str, Labels], bool] = field(default_factory=dict)  # False: folded

    def fold(self, samples: Samples) -> Samples:
        """The samples within the limit, with `folded_series` for the number of folded ones."""
        present = {(m.name, labels) for m, labels, _ in samples.in_order()}
        self.is_own = {key: own for key, own in self.is_own.items() if key in present}
        # Each metric may need series for `other`, and folded_series is one more.
        metrics = [BY_NAME[name] for name in samples.values]
        reserve = 1 + sum(m.series * _other_series(m) for m in metrics if _foldable(m))
        used = sum(BY_NAME[name].series for (name, _), own in self.is_own.items() if own)
        within = Samples()
        folded = 0
        for metric, labels, value in samples.in_order():
            key = (metric.name, labels)
            if key not in self.is_own:
                fits = used + metric.series <= self.limit - reserve
                self.is_own[key] = fits or not _foldable(metric)
                used += metric.series if self.is_own[key] else 0
            if self.is_own[key]:
                within.add(metric.name, labels, value)
            elif metric.kind != "info":  # `other` has nothing to inform about
                within.add(metric.name, _other_labels(metric, labels), value)
            folded += not self.is_own[key]
        within.add("folded_series", (), folded)
        return within


def _foldable(metric: Metric) -> bool:
    return any(label in FOLDABLE for label in metric.labels)


def _other_series(metric: Metric) -> int:
    """The most series that `other` can become: one for each value of labels that stay."""
    return 3 if "scope" in metric.labels else 2 if "n_nodes" in metric.labels else 1


def _other_labels(metric: Metric, labels: Labels) -> Labels:
    return tuple(
        OTHER if name in FOLDABLE or (name == "n_nodes" and value != "1") else value
        for name, value in zip(metric.labels, labels, strict=True)
    )


def with_run(labels: Labels, run: str, host: str) -> Labels:
    """A series' own labels after those that every series of a job has."""
    return (run, host, *labels)
