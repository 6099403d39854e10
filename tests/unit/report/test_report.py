"""Reports of a small job whose numbers were worked out by hand."""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from ncclscope.analysis.groups import Group
from ncclscope.analysis.kernel_time import union_lengths
from ncclscope.analysis.query import connect
from ncclscope.analysis.selection import (
    DEFAULT_BY,
    Selection,
    communicator_rows,
    function_names,
    parse_by,
)
from ncclscope.analysis.summary import Summary, size_rows, sorted_groups
from ncclscope.analysis.summary_from_operations import summarize
from ncclscope.cli.arguments.selection import join_negative_times
from ncclscope.cli.time_arguments import parse_moment
from ncclscope.errors import UsageError
from ncclscope.humanize import amount, duration
from ncclscope.model.model import Model
from ncclscope.report.html import as_html
from ncclscope.report.json_csv import as_csv, as_json
from ncclscope.report.plots import PlotSeries, areas, dots
from ncclscope.report.sections import headline
from ncclscope.report.tables import Column, Table, align, plain_lines
from ncclscope.report.terminal import Style, terminal_lines
from ncclscope.report.units import bar, microseconds, size, sparkline
from tests.support.model_builders import REALTIME_OFFSET_NS, model, operation, random_model, world
from tests.support.paths import DATA

GOLDEN = DATA / "report.txt"
MIB = 1 << 20
# (starts, end) of two AllReduce of 1 MiB on four ranks: rank 3 is late by 100 and 40 µs.
ALL_REDUCES = [((0, 10, 20, 100), 200), ((1000, 1000, 1000, 1040), 1140)]


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def all_reduces() -> list[dict[str, Any]]:
    rows = []
    for number, (starts, end) in enumerate(ALL_REDUCES):
        for rank, start in enumerate(starts):
            rows.append(
                operation(
                    communicator=0, rank=rank, node=rank // 2, function="AllReduce", size_bytes=MIB,
                    datatype="float32", algorithm="RING", protocol="SIMPLE", source="gpu",
                    start_ns=(1000 + start) * 1000, duration_ns=(end - start) * 1000,
                    wait_ns=(max(starts) - start) * 1000, wire_ns=(end - max(starts)) * 1000,
                    instance=number,
                )
            )  # fmt: skip
    return rows


def tensor_parallel() -> list[dict[str, Any]]:
    """On ranks 0 and 1: a Broadcast without times, a captured AllGather and two replays of it, a
    send with its receive, and an AlltoAll made of sends.
    """
    both: dict[str, Any] = {"communicator": 1, "datatype": "bfloat16"}
    early = {"source": "gpu-early", "reason": "stamp never delivered"}
    rows = []
    for rank in (0, 1):
        one = both | {"rank": rank}
        rows.append(
            operation(**one, function="Broadcast", size_bytes=4096, source="none",
                      reason="Broadcast takes NCCL's AllGatherV path", call_ns=3_000_000)
        )  # fmt: skip
        gather = one | {"function": "AllGather", "size_bytes": 8192}
        rows.append(operation(**gather, source="none", state="captured", call_ns=3_100_000))
        for replay in (0, 1):
            start = 3_200_000 + 100_000 * replay
            rows.append(
                operation(**gather | early, replay=1, call_ns=-1, start_ns=start, duration_ns=8000)
            )
        form = "send" if rank == 0 else "recv"
        rows.append(
            operation(**one | early, form=form, function=form.title(), peer=1 - rank,
                      size_bytes=1000, start_ns=3_500_000, duration_ns=5000)
        )  # fmt: skip
        whole = 15 + 7 * rank - 2 * (rank == 1)
        rows.append(
            operation(**one | early, function="AlltoAll", size_bytes=2000, inferred=1,
                      start_ns=3_600_000, duration_ns=6000)
        )  # fmt: skip
        rows.append(
            operation(**one | early, form="send", function="Send", peer=1 - rank, part_of=whole,
                      size_bytes=1000, start_ns=3_600_000, duration_ns=6000)
        )  # fmt: skip
    rows.append(
        operation(**both, rank=0, function="AllReduce", size_bytes=64, source="none",
                  state="in flight", call_ns=3_990_000, launch_end_ns=4_000_000)
    )  # fmt: skip
    return rows


def small() -> Model:
    """Four ranks on two hosts; `world` of all, `tp` of the first host's two."""
    instances = [
        {"communicator": 0, "form": "collective", "function": "AllReduce", "size_bytes": MIB,
         "last_communicator_rank": 3, "skew_ns": skew * 1000, "error_ns": 3000, "first_start_ns": 10**6}
        for skew in (100, 40)
    ]  # fmt: skip
    tp = [dict(row, communicator=1) for row in world(2, 2)]
    communicators = [
        {"id": 0x1234, "name_inferred": 0, "ranks": 4, "nodes": 2},
        {"id": -1, "name_inferred": 1, "ranks": 2, "nodes": 1},
    ]
    return model(
        all_reduces() + tensor_parallel(), instances, communicators, ["world", "tp"],
        [*world(4, 2), *tp], nodes=2,
        counts={"calls": 17, "operations": 19, "gpu_timed": 16, "in_flight": 1,
                "untimed": {"Broadcast takes NCCL's AllGatherV path": 2}},
    )  # fmt: skip


def report(chosen: Selection | None = None, by: tuple[str, ...] = DEFAULT_BY) -> Summary:
    return summarize(small(), chosen or Selection(), by)


def group(summary: Summary, **keys: Any) -> Group:
    found = [g for g in summary.groups if all(g.keys[key] == keys[key] for key in keys)]
    assert len(found) == 1, found
    return found[0]


def test_times_and_bandwidth_by_hand() -> None:
    found = group(report(), communicator="world", function="AllReduce")
    times = found.durations
    assert times is not None
    assert (found.calls, found.operations, found.bytes) == (8, 8, 8 * MIB)
    # durations: 200 190 180 100, 140 140 140 100 µs
    assert times.total_ns == 1_190_000
    assert (times.shortest_ns, times.longest_ns) == (100_000, 200_000)
    assert (times.median_ns, times.p99_ns, times.mean_ns) == (140_000, 200_000, 148_750)
    assert (times.grade, times.lower_bound) == ("gpu", False)
    assert found.algbw_gbs == pytest.approx(8 * MIB / 1_190_000)
    assert found.busbw_gbs == pytest.approx(8 * MIB / 1_190_000 * 1.5)
    assert found.busbw_wire_gbs == pytest.approx(8 * MIB * 1.5 / 800_000)
    assert found.wait_share == pytest.approx(390 / 1190)
    assert found.sources == {"gpu": 8}
    # From the first call at 990 µs to the last launch at 4 ms, on four ranks.
    assert found.run_share == pytest.approx(1_190 / (4 * 3010))


def test_calls_and_operations_of_graphs() -> None:
    found = group(report(), communicator="tp", function="AllGather")
    assert (found.calls, found.operations, found.bytes) == (2, 4, 4 * 8192)
    assert found.durations is not None
    assert found.durations.lower_bound
    assert (found.algbw_gbs, found.busbw_gbs, found.wait_share) == (None, None, None)
    assert found.sources == {"gpu-early": 4}


def test_parts_are_not_counted_and_untimed_has_reasons() -> None:
    summary = report()
    assert group(summary, function="Send").operations == 1
    assert group(summary, function="AlltoAll").inferred
    broadcast = group(summary, function="Broadcast")
    assert broadcast.durations is None
    assert broadcast.sources == {"none": 2}
    assert summary.untimed == {"Broadcast takes NCCL's AllGatherV path": 2}
    assert group(summary, size=64).in_flight == 1


def test_ranks_traffic_scopes() -> None:
    summary = report()
    assert summary.ranks is not None
    first = summary.ranks[0]
    assert first.waiting is not None
    assert (first.rank, first.waiting.times_last, first.wait_ns) == (3, 2, 0)
    assert summary.waiting is not None
    assert summary.waiting.total_ns == sum(
        row.waiting.waited_ns for row in summary.ranks if row.waiting
    )
    assert {r.rank: r.wait_ns for r in summary.ranks} == {0: 140_000, 1: 130_000, 2: 120_000, 3: 0}
    assert summary.traffic is not None
    # 0 -> 1: a send, and a part of the AlltoAll; 1 -> 0: a part. The receive is the send's twin.
    sent = {(row.source, row.destination): row.bytes for row in summary.traffic}
    assert sent == {(0, 1): 2000, (1, 0): 1000}
    assert [(s.scope, s.total.calls) for s in summary.scopes] == [
        ("intra-node", 9),
        ("inter-node", 8),
    ]
    by_hand = [(64, 1), (512, 2), (1024, 2), (4096, 2), (8192, 4), (MIB, 8)]
    assert [(row.low_bytes, row.operations) for row in summary.sizes] == by_hand


def test_without_operations_nothing_began() -> None:
    made = as_json(summarize(model([], [], [], [], []), Selection(), DEFAULT_BY), ())
    assert (made["began"], made["span_ns"], made["operations"]) == (None, None, [])


def test_fused_operations_count_once_for_the_run() -> None:
    rows = [
        operation(communicator=0, rank=0, function="AllReduce", size_bytes=size, datatype="float32",
                  algorithm="RING", source="gpu", start_ns=1_000_000, duration_ns=500_000,
                  call_ns=1_000_000)
        for size in (64, 128)
    ]  # fmt: skip
    made = model(
        rows, [], [{"id": 1, "name_inferred": 0, "ranks": 2, "nodes": 1}], ["w"], world(2, 2)
    )
    summary = summarize(made, Selection(), DEFAULT_BY)
    assert summary.total.run_share == pytest.approx(1.0)
    assert [g.run_share for g in summary.groups] == pytest.approx([0.5, 0.5])


def test_a_send_and_a_receive_of_one_kernel_count_once_for_their_communicator() -> None:
    rows = [
        operation(communicator=0, rank=0, function=function, size_bytes=64, datatype="float32",
                  source="gpu", start_ns=1_000_000, duration_ns=500_000, call_ns=1_000_000)
        for function in ("Send", "Recv")
    ]  # fmt: skip
    made = model(
        rows, [], [{"id": 1, "name_inferred": 0, "ranks": 2, "nodes": 1}], ["w"], world(2, 2)
    )
    for by, shares in ((DEFAULT_BY, [1.0, 1.0]), (("communicator",), [1.0]), (("size",), [1.0])):
        summary = summarize(made, Selection(), by)
        assert [row.total.run_share for row in summary.communicators] == pytest.approx([1.0])
        assert [group.run_share for group in summary.groups] == pytest.approx(shares)


def test_the_head_line_says_of_how_much_waiting_is_known() -> None:
    rows = [
        operation(communicator=0, rank=0, function=function, size_bytes=64, datatype="float32",
                  source="gpu", start_ns=start, duration_ns=length, call_ns=start,
                  **({"wait_ns": 9_000} if function == "AllReduce" else {}))
        for function, start, length in (("Send", 0, 990_000), ("AllReduce", 990_000, 10_000))
    ]  # fmt: skip
    comm = [{"id": 1, "name_inferred": 0, "ranks": 2, "nodes": 1}]
    line = headline(summarize(model(rows, [], comm, ["w"], world(2, 2)), Selection(), DEFAULT_BY))
    assert line.endswith("waiting for other ranks is known of 1 % of that: 90 % of it")
    line = headline(
        summarize(model(rows[1:], [], comm, ["w"], world(2, 2)), Selection(), DEFAULT_BY)
    )
    assert line.endswith("90 % of that waiting for other ranks")


def test_selections() -> None:
    assert report(Selection(communicators=(1,))).total.calls == 9
    assert report(Selection(functions=("AllReduce",))).total.operations == 9
    assert report(Selection(ranks=(3,))).total.operations == 2
    assert report(Selection(since_ns=1_500_000, until_ns=2_500_000)).total.operations == 4
    assert report(Selection(since_ns=10**12)).total.operations == 0


@pytest.mark.parametrize(
    ("by", "rows"),
    [(("rank",), 4), (("host",), 2), (("communicator",), 2), (("function", "algorithm"), 7)],
)
def test_every_grouping_has_the_same_totals(by: tuple[str, ...], rows: int) -> None:
    summary = report(by=by)
    assert len(summary.groups) == rows
    assert sum(g.calls for g in summary.groups) == 17
    assert sum(g.operations for g in summary.groups) == 19
    assert sum(g.bytes for g in summary.groups) == report().total.bytes


def test_many_rows_are_read_where_they_are_and_give_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, by = random_model(3_000, seed=5), (*DEFAULT_BY, "rank", "algorithm")

    def shown() -> dict[str, Any]:
        summary = summarize(made, Selection(), by)
        return as_json(summary, sorted_groups(summary.groups, "time"))

    copied = shown()
    monkeypatch.setattr("ncclscope.analysis.query._COPIED_ROWS", 0)
    assert shown() == copied


def test_groups_across_functions_have_bandwidth() -> None:
    found = group(report(by=("rank",)), rank=3)
    assert found.busbw_gbs == pytest.approx(2 * MIB * 1.5 / 200_000)
    assert found.run_share == pytest.approx(200 / 3010)


def test_grouping_words() -> None:
    assert parse_by(["+rank"]) == (*DEFAULT_BY, "rank")
    assert parse_by(["algo,op", "host"]) == ("algorithm", "function", "host")
    with pytest.raises(UsageError, match="Keys are communicator"):
        parse_by(["colour"])


def test_names_of_communicators_and_functions() -> None:
    made = small()
    assert communicator_rows(made, ["t*"]) == (1,)
    assert communicator_rows(made, ["0x1234", "world"]) == (0,)
    assert communicator_rows(made, ["ffffffffffffffff"]) == (1,)
    with pytest.raises(UsageError, match="It has world, tp"):
        communicator_rows(made, ["dp"])
    assert function_names(["AllReduce"], ["allreduce"]) == ("AllReduce",)
    with pytest.raises(UsageError, match="the capture has none"):
        function_names(["AllReduce"], ["Barrier"])


def test_sorting() -> None:
    summary = report()
    by_calls = sorted_groups(summary.groups, "calls")
    assert by_calls[0].calls == 8
    assert sorted_groups(summary.groups, "wait")[-1].wait_share is None
    names = [g.keys["function"] for g in sorted_groups(summary.groups, "function")]
    assert names == sorted(names, key=str)


def test_many_sizes_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ncclscope.analysis.groups.MOST_GROUPS", 5)
    made = random_model(2000, seed=1)
    made.tables["operations"]["size_bytes"][:] = np.arange(2000)
    summary = summarize(made, Selection(), DEFAULT_BY)
    assert all(g.size_is_class for g in summary.groups)
    assert {g.keys["size"] for g in summary.groups} == {0, *(1 << bit for bit in range(11))}
    assert any("powers of two" in note for note in summary.notes)


def test_unions_equal_a_slow_count() -> None:
    draw = np.random.default_rng(3)
    key = draw.integers(0, 4, 200)
    start = draw.integers(0, 2000, 200)
    end = start + draw.integers(0, 60, 200)
    for shift in (0, 45):  # with 45 bits more, times no longer fit beside keys
        keys, lengths = union_lengths(key << 10, (start << shift) + 7, (end << shift) + 7)
        for k, length in zip(keys, lengths, strict=True):
            own = key == k >> 10
            covered = {t for s, e in zip(start[own], end[own], strict=True) for t in range(s, e)}
            assert length / 2**shift == pytest.approx(len(covered), rel=0.01)
        assert len(keys) == 4


def test_hostile_names() -> None:
    made = small()
    made.words["function"][0] = "All'; drop table\0 <script>alert(1)</script>\x1b[2J"
    names = replace(made, communicator_names=["<b>world</b>", "tp\x1b]0;x\x07"])
    with connect(names, Selection()) as connection:
        found = connection.execute("select distinct function from operations").fetchall()
    assert any("drop table" in str(name) for (name,) in found)
    summary = summarize(names, Selection(), DEFAULT_BY)
    page = as_html(summary, summary.groups)
    assert page.count("<script") == 2, "its data and its own"
    assert "<script>alert" not in page
    assert "<b>world" not in page
    text = "\n".join(terminal_lines(summary, summary.groups, Style()))
    assert "\x1b" not in text
    assert "\x07" not in text


class _Balance(HTMLParser):
    """Collects what is open, and every address."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "input", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_whole_and_asks_for_nothing() -> None:
    summary = report()
    page = as_html(summary, summary.groups)
    parser = _Balance()
    parser.feed(page)
    assert not parser.open
    assert not parser.addresses
    assert not re.search(r"https?:|url\(|@import", page)
    for text in ("AllReduce", "world", "4 of 4 processes", "<svg", "prefers-color-scheme"):
        assert text in page


def test_json_has_what_is_promised() -> None:
    summary = report()
    made = json.loads(json.dumps(as_json(summary, summary.groups), allow_nan=False))
    completeness = made["completeness"]
    assert completeness["processes"] == {"found": 4, "expected": 4}
    assert {
        "calls",
        "operations",
        "gpu_timed",
        "repaired",
        "untimed",
        "dropped",
        "in_flight",
    } <= set(completeness)
    comm = {row["name"]: row for row in made["communicators"]}
    assert comm["tp"]["id"] == "0xffffffffffffffff"
    assert (comm["tp"]["name_inferred"], comm["tp"]["ranks"], comm["tp"]["nodes"]) == (True, 2, 1)
    row = next(row for row in made["operations"] if row["communicator"] == "world")
    assert (row["function"], row["size_bytes"], row["datatype"]) == ("AllReduce", MIB, "float32")
    assert row["duration_ns"] == {
        "min": 100_000, "median": 140_000, "mean": 148_750, "p99": 200_000, "max": 200_000,
    }  # fmt: skip
    assert row["busbw_gbs"] == pytest.approx(10.5738756, rel=1e-6)
    assert row["sources"] == {"gpu": 8}
    assert row["inferred"] is False
    untimed = next(row for row in made["operations"] if row["function"] == "Broadcast")
    assert untimed["duration_ns"] is None
    assert made["began"] == "2026-11-15T06:00:00.000990+00:00"


def test_csv_has_a_line_for_each_group() -> None:
    summary = report(by=("communicator", "function", "rank"))
    head, *lines = as_csv(summary, summary.groups).splitlines()
    assert head.startswith("communicator,function,size_bytes,datatype,rank,min_ns,median_ns")
    assert len(lines) == len(summary.groups)


def test_text_as_it_looks() -> None:
    summary = report()
    lines = list(terminal_lines(summary, sorted_groups(summary.groups, "time"), Style(width=80)))
    assert max(map(len, lines)) <= 80
    assert "\n".join(lines) + "\n" == GOLDEN.read_text()


def test_tables_of_a_kind_have_the_same_columns() -> None:
    """Else they cannot be compared by eye."""
    columns = (Column("name", right=False), Column("calls"), Column("p99", drop=1))
    tables = [
        Table("a", columns, (("x", "1", "2"),)),
        Table("b", columns, (("a longer name", "1,000,000", "22"),)),
    ]
    for width, left_out in ((80, []), (25, ["p99"])):
        aligned, titles = align(tables, width)
        headings = [plain_lines(table, width)[0] for table in aligned]
        assert titles == left_out
        assert headings[0] == headings[1]
        assert len(plain_lines(aligned[0], width)[1][0]) == len(headings[0]) <= width


def test_colour_only_where_it_is_welcome() -> None:
    summary = report()
    assert "\x1b[1m" in "".join(terminal_lines(summary, summary.groups, Style(colour=True)))
    assert "\x1b" not in "".join(terminal_lines(summary, summary.groups, Style()))


@pytest.mark.parametrize(
    ("text", "second"),
    [
        ("06:00:20", 20), ("6:01", 60), ("2026-11-15T06:00:20Z", 20), ("2026-11-15 07:00:20+01:00", 20),
        ("-5m", 3600 - 300), ("-1.5", 3598.5), ("-100ms", 3599.9), ("12.5", 10 + 12.5), ("3s", 13),
    ],
)  # fmt: skip
def test_moments(text: str, second: float) -> None:
    parsed = parse_moment(text, 10 * 10**9, 3600 * 10**9, REALTIME_OFFSET_NS)
    assert parsed == pytest.approx(second * 1e9, abs=1000)


@pytest.mark.parametrize("text", ["yesterday", "25:00", "-5 parsecs", ""])
def test_moments_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="cannot understand the time"):
        parse_moment(text, 0, 10**9, REALTIME_OFFSET_NS)


def test_moments_before_the_end_are_no_options() -> None:
    joined = join_negative_times(["report", "--since", "-5m", "--until", "12", "-v", "--op", "-1"])
    assert joined == ["report", "--since=-5m", "--until", "12", "-v", "--op", "-1"]
    assert join_negative_times(["x", "--since"]) == ["x", "--since"]


def test_past_midnight() -> None:
    evening = 17 * 3600 * 10**9  # 23:00
    parsed = parse_moment("00:30", evening, evening + 7200 * 10**9, REALTIME_OFFSET_NS)
    assert parsed == evening + 5400 * 10**9


def test_words() -> None:
    assert [size(n) for n in (0, 1000, 1024, 1 << 25, 3 << 19)] == [
        "0",
        "1000",
        "1K",
        "32M",
        "1.5M",
    ]
    assert [amount(n) for n in (0, 999, 1000, 1234567, 10**12)] == [
        "0 B", "999 B", "1.00 KB", "1.23 MB", "1.00 TB",
    ]  # fmt: skip
    assert [duration(n) for n in (0, 5, 999_600, 2.36e9)] == ["0", "5 ns", "1.00 ms", "2.36 s"]
    assert [microseconds(n) for n in (140_000, 1234, 20_133_000, 2e9)] == [
        "140", "1.23", "20,133", "2.00 s",
    ]  # fmt: skip
    assert (bar(0, 4), bar(1e-9, 4), bar(0.5, 4), bar(1, 4)) == ("", "▏", "██", "████")
    assert sparkline((0, 1, 8), 20) == " ▁█"
    assert len(sparkline(tuple(range(60)), 20)) == 20
    assert size_rows([]) == ()


@pytest.mark.parametrize("span_s", [0.662, 1.0, 4.01, 12.5, 1e3, 20_000.0, 86_400.0])
def test_marks_below_a_plot_are_round_and_not_cut_off(span_s: float) -> None:
    over_time = areas([PlotSeries("world", ((0.0, 1.0), (1.0, 2.0)))], span_s, "GB/s")
    by_size = dots([PlotSeries("AllReduce", ((8.0, 1.0), (2.0**49, 2.0)))], "GB/s")
    for plot in (over_time, by_size):
        width = float(plot.partition('viewBox="0 -8 ')[2].partition(" ")[0])
        marks = re.findall(r'<text x="([\d.]+)" y="222.0" text-anchor="(\w+)">([^<]+)<', plot)
        assert len(marks) >= 3
        for x, anchor, text in marks:
            reach = {"middle": 0.5, "end": 0.0}[anchor] * 6 * len(text)  # of letters 11 px high
            assert float(x) + reach <= width, text
        if plot is over_time:
            steps = np.diff([float(text) for _, _, text in marks])
            assert steps == pytest.approx([steps[0]] * len(steps))
