"""Plots of a capture on matplotlib, which is imported when the first one is drawn."""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ncclscope.analysis.rank_slices import time_covered
from ncclscope.arrays.types import Floats
from ncclscope.errors import NcclscopeError
from ncclscope.humanize import printable
from ncclscope.model.schema import NONE
from ncclscope.notebook.answers import Report
from ncclscope.notebook.frames import Relation, extra
from ncclscope.report.units import size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SLICES = 600  # of time: about the pixels of a plot
_DPI = 120
_WIRE, _WAIT = (0.18, 0.44, 0.87), (0.95, 0.65, 0.36)  # blue and orange
_COLOURS = {"wire": _WIRE, "wait": _WAIT, "either": (0.6, 0.6, 0.6)}
_LEGEND = {
    "wire": "on the wire",
    "wait": "waiting",
    "either": "one of these",
    "none": "no NCCL kernel",
}
_MOST_LABELS = 32
_MEASURES = {"bytes": "bytes", "busbw_wire_gbs": "GB/s on the wire", "messages": "messages"}


class Source(Protocol):
    """What is drawn: a capture."""

    path: Path

    def report(self, by: Sequence[str] = ()) -> Report:
        """The report by these keys."""

    def sql(self, query: str) -> Relation:
        """The result of a query."""


class Plot:
    """A drawn plot. Notebooks show it; `figure` is matplotlib's, for changes."""

    def __init__(self, figure: "Figure") -> None:
        self.figure = figure

    def save(self, path: "str | os.PathLike[str]") -> None:
        """Writes a file: PNG, SVG, PDF …, by the ending of its name."""
        try:
            self.figure.savefig(path, dpi=_DPI, bbox_inches="tight")
        except (OSError, ValueError) as error:
            cause = getattr(error, "strerror", None) or str(error).partition("\n")[0]
            raise NcclscopeError(
                f"cannot write {os.fspath(path)}: {cause}", "Name a file like plot.png or plot.svg"
            ) from None

    def __repr__(self) -> str:
        title = self.figure.axes[0].get_title() if self.figure.axes else ""
        return f'<plot "{title}": a notebook shows it, save("plot.png") writes it>'

    def _repr_png_(self) -> bytes:
        out = io.BytesIO()
        self.figure.savefig(out, format="png", dpi=_DPI, bbox_inches="tight")
        return out.getvalue()


class Plots:
    """The plots that a capture has."""

    def __init__(self, capture: Source) -> None:
        self._capture = capture

    def bandwidth_by_size(self) -> Plot:
        """Bus bandwidth over message size, a line for each function."""
        groups = self._capture.report(by=["function", "size"]).groups
        points: dict[str, list[tuple[int, float]]] = {}
        for group in groups:
            if group.busbw_gbs is not None and group.keys["size"] is not None:
                name, bytes_ = str(group.keys["function"]), int(group.keys["size"])
                points.setdefault(name, []).append((bytes_, group.busbw_gbs))
        plot, axes = _new("bus bandwidth by message size")
        for name, line in sorted(points.items()):
            sizes, speeds = zip(*sorted(line), strict=True)
            axes.plot(sizes, speeds, marker="o", markersize=4, label=printable(name))
        axes.set(xlabel="message size", ylabel="GB/s", ylim=(0, None))
        if points:
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(lambda value, _: size(int(value)))
            axes.legend()
        return plot

    def waiting_by_rank(self) -> Plot:
        """For how long each rank waited for others, and how much waiting began on it."""
        rows = [row for row in self._capture.report().summary.ranks or () if row.rank is not None]
        rows.sort(key=lambda row: row.rank or 0)
        plot, axes = _new("waiting by rank")
        ranks = np.array([row.rank for row in rows], float)
        caused = [row.waiting.origin_ns / 1e6 if row.waiting else 0.0 for row in rows]
        waited = [(row.wait_ns or 0) / 1e6 for row in rows]
        axes.bar(ranks - 0.2, caused, 0.4, color=_WIRE, label="made others wait")
        axes.bar(ranks + 0.2, waited, 0.4, color=_WAIT, label="waited itself")
        axes.set(xlabel="global rank", ylabel="ms")
        if len(rows) <= _MOST_LABELS:
            axes.set_xticks(ranks)
        axes.legend()
        return plot

    def timeline(self, since_s: float = 0.0, until_s: float | None = None) -> Plot:
        """A strip for each rank: when its NCCL kernels moved data, waited, or did not run."""
        strips = _Strips(self._capture, since_s, until_s)
        colours = np.ones((len(strips.ranks), _SLICES, 3))
        for kind, colour in _COLOURS.items():
            colours -= strips.shares(kind)[:, :, None] * (1 - np.array(colour))
        plot, axes = _new("NCCL kernels over time", height=1.5 + 0.25 * min(len(strips.ranks), 40))
        axes.imshow(colours.clip(0, 1), aspect="auto", interpolation="nearest", extent=strips.box)
        strips.label(axes)
        _legend(axes)
        return plot

    def rank_heatmap(self, since_s: float = 0.0, until_s: float | None = None) -> Plot:
        """The share of time that each rank waited for others, over time."""
        strips = _Strips(self._capture, since_s, until_s)
        plot, axes = _new("share of time waiting", height=1.5 + 0.25 * min(len(strips.ranks), 40))
        image = axes.imshow(
            strips.shares("wait", slices=60), aspect="auto", interpolation="nearest",
            extent=strips.box, vmin=0, vmax=1, cmap="inferno",
        )  # fmt: skip
        strips.label(axes)
        plot.figure.colorbar(image, ax=axes, label="share")
        return plot

    def pair_heatmap(self, measure: str = "bytes") -> Plot:
        """Rank by rank what sends moved: `bytes`, `messages` or `busbw_wire_gbs`."""
        if measure not in _MEASURES:
            raise NcclscopeError(
                f"cannot draw {measure} of pairs", f"Measures are {', '.join(_MEASURES)}"
            )
        query = f"select source_global_rank, destination_global_rank, {measure} from pairs"
        pairs = self._capture.sql(query).fetchall()
        ranks = sorted({rank for pair in pairs for rank in pair[:2]})
        matrix = np.full((len(ranks), len(ranks)), np.nan)
        for source, destination, value in pairs:
            matrix[ranks.index(source), ranks.index(destination)] = (
                np.nan if value is None else value
            )
        plot, axes = _new(f"sends from rank to rank: {_MEASURES[measure]}", height=5)
        if ranks:
            image = axes.imshow(matrix, interpolation="nearest", cmap="viridis")
            plot.figure.colorbar(image, ax=axes, label=_MEASURES[measure])
        else:
            axes.text(0.5, 0.5, "no sends on record", ha="center", transform=axes.transAxes)
        axes.set(xlabel="to global rank", ylabel="from global rank")
        if len(ranks) <= _MOST_LABELS:
            axes.set_xticks(range(len(ranks)), list(map(str, ranks)))
            axes.set_yticks(range(len(ranks)), list(map(str, ranks)))
        return plot


class _Strips:
    """Operations of each rank within a window of time, in slices."""

    def __init__(self, capture: Source, since_s: float, until_s: float | None) -> None:
        columns = capture.sql(
            "select global_rank, start_ns, wait_ns, end_ns from operations "
            "where part_of is null and start_ns is not null and end_ns is not null "
            "and global_rank is not null order by global_rank"
        ).fetchnumpy()
        if not len(columns["start_ns"]):
            raise NcclscopeError(
                f"cannot draw {capture.path} over time: no operation has a start and an end",
                "Record with --mode trace",
            )
        rank, start, wait, end = (
            np.ma.filled(columns[name], NONE).astype(np.int64)
            for name in ("global_rank", "start_ns", "wait_ns", "end_ns")
        )
        begin = int(start.min()) + round(since_s * 1e9)
        stop = int(end.max()) if until_s is None else int(start.min()) + round(until_s * 1e9)
        self._edges = (begin, max(stop, begin + 1))
        self.ranks = np.unique(rank)
        self._places = np.searchsorted(rank, [*self.ranks, self.ranks[-1] + 1])
        known = wait != NONE
        arrival = np.where(known, np.minimum(start + wait, end), start)
        self._spans = {
            "wait": (start, arrival),
            "wire": (np.where(known, arrival, end), end),
            "either": (np.where(known, end, start), end),
        }
        self.box = (since_s, since_s + (self._edges[1] - begin) / 1e9, len(self.ranks) - 0.5, -0.5)

    def shares(self, kind: str, slices: int = _SLICES) -> Floats:
        """By rank and slice of time the share that is covered."""
        edges = np.linspace(*self._edges, slices + 1)
        starts, ends = self._spans[kind]
        rows = []
        for first, last in zip(self._places[:-1], self._places[1:], strict=True):
            covered = time_covered(starts[first:last], edges)
            covered = covered - time_covered(ends[first:last], edges)
            rows.append(np.diff(covered) / np.diff(edges))
        return np.clip(np.array(rows), 0, 1)

    def label(self, axes: "Axes") -> None:
        """Names the axes."""
        axes.set(xlabel="s", ylabel="global rank")
        every = max(len(self.ranks) // _MOST_LABELS, 1)
        axes.set_yticks(range(0, len(self.ranks), every), list(map(str, self.ranks[::every])))


def _new(title: str, height: float = 4.0) -> tuple[Plot, Any]:
    """An empty plot and its axes. Without pyplot: no window, and nothing to close."""
    figure = extra("matplotlib.figure", "draw a plot").Figure(figsize=(9, height))
    axes = figure.add_subplot()
    axes.set_title(title)
    return Plot(figure), axes


def _legend(axes: Any) -> None:
    patch = extra("matplotlib.patches").Patch
    handles = [
        patch(facecolor=colour, edgecolor="#888", label=_LEGEND[kind])
        for kind, colour in (_COLOURS | {"none": (1.0, 1.0, 1.0)}).items()
    ]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0))
