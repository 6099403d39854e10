"""Reports of operations of which a sample was timed: what is extrapolated is marked, and has an
interval; what is an upper bound says so.
"""

import csv
import io
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ncclscope.analysis.rank_slices import rank_slices
from ncclscope.analysis.selection import DEFAULT_BY, Selection
from ncclscope.analysis.summary import Summary, sorted_groups
from ncclscope.analysis.summary_from_operations import summarize
from ncclscope.model.model import Model
from ncclscope.model.schema import NOT_SAMPLED
from ncclscope.report.html import as_html
from ncclscope.report.json_csv import as_csv, as_json
from ncclscope.report.tables import sort_value
from ncclscope.report.terminal import Style, terminal_lines
from tests.support.model_builders import model, operation, world

KIB = 1 << 10
SAMPLED = ("timed", "operations", "total_ns", "median_ns", "mean_ns", "p99_ns", "busbw_gbs")


def calls(function: str, size_bytes: int, source: str, communicator: int) -> list[dict[str, Any]]:
    """40 calls on each of two ranks: the first 8 are timed, then each eighth."""
    rows = []
    for rank in (0, 1):
        for number in range(40):
            columns: dict[str, Any] = {"source": "none"}
            if number < 8 or number % 8 == 3:
                length_ns = 20_000 + 100 * (number % 5) + 50 * rank
                columns = {"source": source, "duration_ns": length_ns}
            start_ns = 10**6 + 100_000 * number + size_bytes
            rows.append(
                operation(
                    communicator=communicator, rank=rank, function=function, size_bytes=size_bytes,
                    datatype="float32", algorithm="RING", protocol="LL", call_ns=start_ns - 9_000,
                    start_ns=start_ns, dimension="dp", **columns,
                )
            )  # fmt: skip
    return rows


def sampled(plain: Model) -> Model:
    """The model, of which the recorder chose what is timed."""
    reasons = [*plain.words["reason"], NOT_SAMPLED]
    return replace(plain, words=plain.words | {"reason": reasons})


def job(*, timed_all: bool = False) -> Model:
    """`world` across nodes and `tp` within one; Send and Recv share their launches."""
    operations = [
        *calls("AllReduce", 64 * KIB, "gpu-event", 0),
        *calls("AllReduce", 64, "gpu-event-rough", 1),
        *calls("Send", 4 * KIB, "gpu-event-upper", 1),
    ]
    for row in operations:
        row.pop("dimension")
    communicators = [
        {"id": 1, "name_inferred": 0, "ranks": 2, "nodes": 2, "dimension": "dp"},
        {"id": 2, "name_inferred": 0, "ranks": 2, "nodes": 1, "dimension": "tp"},
    ]
    members = [*world(2, 1), *(dict(row, communicator=1) for row in world(2, 1))]
    made = model(operations, [], communicators, ["world", "tp"], members)
    for row in range(len(operations)):
        made.tables["operations"]["step"][row] = row % 40
    return made if timed_all else sampled(made)


@pytest.fixture(scope="module")
def summary() -> Summary:
    return summarize(job(), Selection(), DEFAULT_BY)


def text_of(summary: Summary, width: int = 200) -> list[str]:
    groups = sorted_groups(summary.groups, "time")
    return list(terminal_lines(summary, groups, Style(width)))


def section(lines: list[str], title: str) -> list[str]:
    """The lines of one table: headings, rows and notes."""
    first = next(place for place, line in enumerate(lines) if line.startswith(f"── {title}"))
    last = next((n for n in range(first, len(lines)) if not lines[n]), len(lines))
    return lines[first + 1 : last]


def cells(lines: list[str], name: str) -> dict[str, str]:
    """The row that begins with a name, by heading; the first column may have none."""
    row = next(line for line in lines[1:] if line.startswith(name))
    return dict(zip(re.split(r"  +", lines[0]), re.split(r"  +", row), strict=False))


def test_estimates_in_every_table_are_marked(summary: Summary) -> None:
    lines = text_of(summary)
    of_world = cells(section(lines, "communicators"), "world")
    assert [of_world[name][0] for name in ("GPU time", "busbw", "run")] == ["≈"] * 3
    own = cells(section(lines, "world:"), "AllReduce")
    marked = ("median", "mean", "p99", "algbw", "busbw", "run")
    assert [own[name][0] for name in marked] == ["≈"] * len(marked)
    assert own["min"][0] != "≈" != own["max"][0], "these are of the timed ones"
    scope = cells(section(lines, "within and across nodes"), "inter-node")
    assert (scope["GPU time"][0], scope["busbw"][0]) == ("≈", "≈")
    (dimension,) = [
        line for line in section(lines, "communication by parallelism") if line[:3] == "dp "
    ]
    assert dimension.count("≈") == 2, "time and bandwidth"
    sizes = section(lines, "message sizes")[1:4]
    assert [line.split("  ")[-1].strip()[0] for line in sizes] == ["≈"] * 3


def test_upper_bounds_say_at_most_everywhere(summary: Summary) -> None:
    lines = text_of(summary)
    assert "NCCL kernels ran at most " in " ".join(lines[:8])
    tp = cells(section(lines, "communicators"), "tp")
    assert (tp["GPU time"][:2], tp["run"][:2]) == ("≤≈", "≤≈")
    send = cells(section(lines, "tp:"), "Send")
    assert [send[name][0] for name in ("min", "median", "mean", "p99", "max", "run")] == ["≤"] * 6
    assert (send["algbw"], send["busbw"]) == ("–", "–")
    intervals = section(lines, "from a sample")
    of_send = next(line for line in intervals if " Send " in line)
    assert "[" not in of_send, "of upper bounds the lower end says nothing"
    assert of_send.count("≤") >= 3
    assert any(line.startswith("≤b: at most so much") for line in intervals)
    exact = next(line for line in intervals if re.match(r"world +AllReduce", line))
    assert "≤" not in exact


def test_marks_are_explained_where_they_occur_and_nowhere_else(summary: Summary) -> None:
    lines = text_of(summary)
    assert sum(line.startswith("≈: an estimate for all operations") for line in lines) >= 2
    assert sum(line.startswith("≤: at most") for line in lines) >= 2
    everything_timed = text_of(summarize(job(timed_all=True), Selection(), DEFAULT_BY))
    assert "≈" not in "".join(everything_timed)
    without_sends = Selection(functions=("AllReduce",))
    of_collectives = text_of(summarize(job(), without_sends, DEFAULT_BY))
    assert "≤" not in "".join(of_collectives)
    assert "≈" in "".join(of_collectives)


@pytest.mark.parametrize("width", [80, 120])
def test_a_narrow_terminal_says_which_intervals_it_leaves_out(summary: Summary, width: int) -> None:
    lines = text_of(summary, width)
    heading = section(lines, "from a sample")[0]
    (note,) = [line for line in lines if line.startswith("a wider terminal shows intervals of")]
    left_out = note.removeprefix("a wider terminal shows intervals of ").split(", ")
    assert not set(left_out) & set(heading.split())
    assert {"median", "run"} <= {*left_out, *heading.split()}
    wide = text_of(summary, 300)
    assert not any(line.startswith("a wider terminal shows intervals") for line in wide)


def test_json_has_an_interval_for_each_estimate(summary: Summary) -> None:
    made = as_json(summary, summary.groups)
    parts = made["training"]
    rows = [
        made["total"], *made["communicators"], *made["operations"], *made["scopes"],
        *parts["dimensions"],
    ]  # fmt: skip
    assert len(rows) == 1 + 2 + 3 + 2 + 2
    for row in rows:
        sample = row["sample"]
        assert set(SAMPLED) <= set(sample)
        for name in ("total_ns", "mean_ns"):
            assert sample[name]["low"] <= sample[name]["value"] <= sample[name]["high"]
    sends = {row["function"]: row.get("duration_is_upper_bound") for row in made["operations"]}
    assert sends == {"AllReduce": None, "Send": True}
    upper = [row.get("duration_is_upper_bound", False) for row in made["communicators"]]
    assert sorted(upper) == [False, True]
    for row in made["sizes"]:
        of_size = row["gpu_ns_estimate"]
        assert of_size["low"] <= row["gpu_ns"] <= of_size["high"]
    assert sum(row["gpu_ns"] for row in made["sizes"]) == pytest.approx(
        made["total"]["total_ns"], abs=3
    )


def test_csv_has_the_ends_and_says_what_is_an_upper_bound(summary: Summary) -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(summary, summary.groups))))
    of_function = {row["function"]: row for row in rows}
    assert of_function["Send"]["duration_is_upper_bound"] == "True"
    for name in ("total_ns", "mean_ns", "algbw_gbs", "run_share"):
        ends = [
            float(of_function["AllReduce"][f"{name}_{end}"] or "nan") for end in ("low", "high")
        ]
        assert ends[0] <= float(of_function["AllReduce"][name] or "nan") <= ends[1] or np.isnan(
            ends[0]
        )
    everything = summarize(job(timed_all=True), Selection(functions=("AllReduce",)), DEFAULT_BY)
    (heading, *_) = as_csv(everything, everything.groups).splitlines()
    assert "upper" not in heading
    assert "total_ns_low" not in heading


def test_the_page_has_the_same_marks(summary: Summary) -> None:
    html = as_html(summary, sorted_groups(summary.groups, "time"))
    assert "≈: an estimate for all operations" in html
    assert "estimates from a sample: intervals are below" in html
    assert [sort_value(cell) for cell in ("≈1.58 s", "≤≈20.2", "≈<1 %")] == [1.58e6, 20.2, 1.0]


def test_a_sample_does_not_say_how_ranks_spend_their_time() -> None:
    """Most operations have no time: what is left is no time without kernels."""
    assert rank_slices(job(), Selection(), 10) is None
    assert rank_slices(job(timed_all=True), Selection(), 10) is not None
