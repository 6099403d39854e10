"""Answers of the verbs in Python: the same as the command line's, as data, frames and plots."""

import json
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

import ncclscope
from ncclscope.analysis import time_selection
from ncclscope.api import Capture
from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.model.schema import TABLES
from ncclscope.model.topology import Link, Topology, Warning
from ncclscope.nccl.bandwidth import bus_factor
from ncclscope.notebook.frames import Relation
from ncclscope.notebook.views import LOCAL_NAMES
from ncclscope.simulation.scenario import Call, Communicators, Late, Scenario
from tests.support.player import ncclscope as command
from tests.support.writer import write_scenario

JOB = Scenario(
    ranks=4,
    ranks_per_host=2,
    steps=30,
    communicators=(Communicators("world"), Communicators("tp", 2), Communicators("dp", 2, 2)),
    calls=(
        Call("tp", "AllGather", 1 << 18),
        Call("dp", "AllReduce", 1 << 20),
        Call("world", "SendRecv", 1 << 16),
    ),
    late=(Late(rank=2, ms=20),),
)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    path = tmp_path_factory.mktemp("captures") / "job"
    write_scenario(path, JOB, 1)
    return ncclscope.open(path)


def test_answers_are_what_the_verbs_print(capture: Capture, tmp_path: Path) -> None:
    for words, answer in (
        (["report", "--by", "rank,function"], capture.report(by=["rank", "function"])),
        (["report", "--rank", "2", "--op", "allreduce"], capture.report(rank=2, op="allreduce")),
        (["diagnose"], capture.diagnose()),
        (["status"], capture.status()),
        (["whatif", "--without", "rank", "2"], capture.whatif(without_rank=2)),
        (["whatif", "--free", "dp", "--last", "400ms"], capture.whatif(free="dp", since=-0.4)),
        (["diagnose", "--rank", "2"], capture.diagnose(rank=2)),
        (["diagnose", "--rank", "0", "--comm", "tp*"], capture.diagnose(rank=[0], comm="tp*")),
        (["diagnose", "--since", "0.1", "--until", "0.5"], capture.diagnose(since=0.1, until=0.5)),
    ):
        printed = command(words[0], capture.path, *words[1:], "--json").stdout
        assert json.loads(answer.to_json()) == json.loads(printed) == dict(answer), words
        text = command(words[0], capture.path, *words[1:]).stdout.splitlines()
        assert repr(answer).split()[:5] == " ".join(text).split()[:5]
    compared = ncclscope.compare(capture, str(capture.path))
    assert dict(compared) == dict(capture.compare([capture]))
    assert compared.verdict == compared["verdict"] == compared.comparison.verdict
    both = [capture.path, capture.path]
    printed = command("compare", *both, "--last", "200ms", "--json").stdout
    assert json.loads(printed) == dict(capture.compare(capture, since=-0.2)) != dict(compared)
    printed = command("compare", *both, "--comm", "dp*", "--op", "allreduce", "--json").stdout
    chosen = capture.compare(capture, comm="dp*", op="allreduce")
    assert json.loads(printed) == dict(chosen) != dict(compared)


def test_filters_that_match_nothing_are_refused_as_by_the_verbs(capture: Capture) -> None:
    for ask in (capture.report, capture.diagnose):
        with pytest.raises(UsageError, match=r"cannot select rank 99: no such process .* ranks 0"):
            ask(rank=99)
        with pytest.raises(UsageError, match="cannot select communicator nonsense"):
            ask(comm="nonsense")
    with pytest.raises(UsageError, match=r"cannot select operation nonsense: neither job"):
        capture.compare(capture, op="nonsense")
    about_two, others = capture.diagnose(rank=2), capture.diagnose(rank=0)
    assert all(2 in finding.ranks for finding in about_two.findings)
    assert len(about_two.findings) + about_two["left_out"] == len(capture.diagnose().findings)
    assert "straggler" not in {finding.family for finding in others.findings}


def test_answers_have_objects_and_frames(capture: Capture) -> None:
    (straggler,) = [f for f in capture.diagnose().problems if f.family == "straggler"]
    assert straggler.ranks == (2,)
    report = capture.report()
    ranks = report.table("ranks")
    assert ranks.order("caused_wait_ns desc").fetchall()[0][0] == 2
    assert report.to_pandas("ranks")["rank"].tolist()[0] == 2
    assert report.to_polars("ranks").rows() == ranks.fetchall()
    assert report.to_arrow("operations").num_rows == len(report.groups)
    assert "duration_ns_median" in report.table("operations").columns
    assert not capture.status().hung
    assert capture.whatif(without_rank=2).gained_share > 0.1
    with pytest.raises(UsageError, match=r"there is no table nonsense .* It has .*ranks"):
        report.table("nonsense")
    with pytest.raises(UsageError, match="cannot change rank 9"):
        capture.whatif(without_rank=9)
    with pytest.raises(UsageError, match="one side has no run"):
        ncclscope.compare(capture, [])


def test_of_a_run_that_is_too_long_the_middle_is_replayed(
    capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = capture.whatif(without_rank=2)
    assert whole["limits"] == []
    operations = int(capture.report()["total"]["operations"])
    monkeypatch.setattr(time_selection, "MOST_REPLAYED", operations // 2)
    part = capture.whatif(without_rank=2)
    (limit,) = part["limits"]
    assert limit.startswith(f"{operations:,} operations: the replay is of ")
    said = " ".join(repr(part).split())
    assert said.startswith(f"! {limit}; --since and --until choose a part")
    assert 0.3 < part["run_now_ns"] / whole["run_now_ns"] < 0.7
    assert part.gained_share == pytest.approx(whole.gained_share, rel=0.2)


def test_windows_are_seconds_or_datetimes(capture: Capture) -> None:
    def operations(**window: float | datetime) -> int:
        return int(capture.report(**window)["total"]["operations"])

    everything = operations()
    start = capture.sql("select min(call_utc) from operations").fetchall()[0][0]
    moment = start.replace(tzinfo=timezone.utc)
    assert operations(since=0.0) == operations(since=moment) == everything
    assert 0 < operations(since=0.2) < everything
    assert operations(since=0.2) + operations(until=0.2) == everything
    assert 0 < operations(since=-0.2) < everything


def test_what_is_local_to_a_communicator_says_so_and_has_a_global_column_beside_it(
    capture: Capture,
) -> None:
    for table in TABLES:
        columns = capture.table(table).columns
        assert not set(columns) & set(LOCAL_NAMES), table
        ranks = [name for name in columns if name == "rank" or name.endswith("_rank")]
        assert all(name.endswith(("communicator_rank", "global_rank")) for name in ranks), table
    rows = capture.sql(
        "select i.communicator, last_communicator_rank, last_global_rank, m.global_rank "
        "from instances i join members m on m.communicator = i.communicator "
        "and m.communicator_rank = last_communicator_rank"
    ).fetchall()
    assert rows
    assert all(row[2] == row[3] for row in rows)
    assert any(row[1] != row[2] for row in rows)
    late = capture.sql(
        "select mode(last_global_rank) from instances where communicator_name like 'tp%' "
        "and skew_ns > 10000000"
    )
    assert late.fetchall() == [(2,)]
    steps = capture.sql("select distinct global_rank from steps order by 1").fetchall()
    assert steps == [(0,), (1,), (2,), (3,)]


def test_bandwidths_are_those_of_nccl_tests(capture: Capture) -> None:
    rows = capture.sql(
        "select function, c.ranks, size_bytes, duration_ns, wire_ns, algbw_gbs, busbw_gbs, "
        "busbw_wire_gbs from operations join communicators c using (communicator) "
        "where source = 'gpu' and wire_ns > 0 and form = 'collective'"
    ).fetchall()
    assert len(rows) > 100
    for function, ranks, size, duration, wire, algbw, busbw, busbw_wire in rows:
        factor = bus_factor(function, ranks)
        assert factor is not None
        assert algbw == pytest.approx(size / duration)
        assert busbw == pytest.approx(size / duration * factor)
        assert busbw_wire == pytest.approx(size / wire * factor)


def test_pairs_are_sends_between_ranks_of_the_job(capture: Capture) -> None:
    rows = capture.pairs.project("source_global_rank, destination_global_rank, messages, bytes")
    assert rows.fetchall() == [(r, (r + 1) % 4, 30, 30 << 16) for r in range(4)]
    hosts = capture.pairs.project("source_host, destination_host").distinct().fetchall()
    assert len(hosts) == 4


def test_plots_show_in_notebooks_and_are_saved(capture: Capture, tmp_path: Path) -> None:
    plots = (
        capture.plot.bandwidth_by_size(),
        capture.plot.waiting_by_rank(),
        capture.plot.timeline(until_s=0.3),
        capture.plot.rank_heatmap(),
        capture.plot.pair_heatmap("messages"),
    )
    assert plots[0]._repr_png_().startswith(b"\x89PNG")
    for number, plot in enumerate(plots):
        plot.save(tmp_path / f"{number}.svg")
        assert "<svg" in (tmp_path / f"{number}.svg").read_text()
    caused = [patch.get_height() for patch in plots[1].figure.axes[0].patches[:4]]
    assert max(caused) == caused[2]
    (image,) = plots[3].figure.axes[0].images
    assert image.get_array().mean(axis=1).argmin() == 2  # all wait for it
    with pytest.raises(NcclscopeError, match=r"cannot write .*plot\.nonsense"):
        plots[0].save(tmp_path / "plot.nonsense")
    with pytest.raises(NcclscopeError, match="Measures are bytes"):
        capture.plot.pair_heatmap("nonsense")


def test_html_is_escaped(tmp_path: Path) -> None:
    write_scenario(
        tmp_path / "<b>", Scenario(ranks=2, steps=4, communicators=(Communicators("world"),)), 1
    )
    capture = ncclscope.open(tmp_path / "<b>")
    for answer in (capture.report(), capture.diagnose(), capture.status()):
        assert "<b>/" not in answer._repr_html_().replace("<b>rank", "")
        assert answer._repr_html_().startswith("<")
    noted = replace(capture.completeness(), notes=["not read: <i>"])
    assert "<li>not read: &lt;i&gt;</li>" in noted._repr_html_()
    assert "2 of 2 processes" in noted._repr_html_()


def test_everything_shows_itself_in_a_notebook(capture: Capture) -> None:
    """As HTML or as a picture, by the methods that notebooks ask for."""
    topology = Topology(
        warnings=(Warning("<i>slow", 2, ("node0",), False),),
        links=(
            Link("0x1", 0, 1, "node0", "<b>", "NET", "NET/IB/0", "inter-node", False, (), True, 2),
        ),
    )
    findings = capture.diagnose()
    for shown in (
        capture, capture.operations, capture.sql("select 1"), capture.completeness(),
        capture.topology(), topology, capture.report(), findings, findings.findings[0],
        capture.status(), capture.whatif(without_rank=2), capture.compare(capture),
        capture.report().table("ranks"),
    ):  # fmt: skip
        if isinstance(shown, Relation) and not hasattr(shown, "_repr_mimebundle_"):
            continue  # DuckDB before 2.0: a table as text
        html = (
            shown._repr_mimebundle_()["text/html"]
            if isinstance(shown, Relation)
            else shown._repr_html_()
        )
        assert html.startswith("<"), type(shown)
    assert "&lt;i&gt;slow (2 times)" in topology._repr_html_()
    assert "<td>&lt;b&gt;</td>" in topology._repr_html_()
    assert "no log of NCCL" in capture.topology()._repr_html_()


def test_types_are_for_everybody() -> None:
    assert (Path(ncclscope.__file__).parent / "py.typed").is_file()
