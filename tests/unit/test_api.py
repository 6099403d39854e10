"""Captures in Python: lazy, with names, and with tables that agree with each other."""

import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import polars
import pytest

import ncclscope
from ncclscope.api import Capture
from ncclscope.capture.dump_events import events_of
from ncclscope.capture.reader import open_capture
from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.model.build import open_model
from ncclscope.model.periodic_steps import with_periodic_steps
from ncclscope.model.sql_views import SHOWN, SQL_TYPES, shown_columns
from ncclscope.notebook.views import added_columns, name_in_python
from tests.support.player import TRANSCRIPTS
from tests.support.writer import SyntheticSpec, from_transcript, synthetic

NAMES = ("2.28.9-v5-2ranks", "2.26.5-v3-2ranks", "2.32.3-v7-2ranks-one-host")


@pytest.fixture(scope="module", params=NAMES)
def capture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Capture:
    path = tmp_path_factory.mktemp("captures") / request.param
    from_transcript(TRANSCRIPTS / request.param, path)
    return ncclscope.open(path)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """Two nodes whose clocks are seconds apart, and drift."""
    path = tmp_path_factory.mktemp("captures") / "job"
    layers = (tuple(range(4)), (0, 1), (2, 3))
    synthetic(
        path,
        SyntheticSpec(
            processes=4,
            operations=400,
            ranks_per_node=2,
            communicators=layers,
            communicator_names=("", "left", "it's"),
        ),
    )
    return ncclscope.open(str(path))


def test_importing_is_cheap() -> None:
    code = "import sys, ncclscope; print(sorted({'numpy', 'duckdb', 'pyarrow'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_nothing_is_decoded_before_it_is_asked_for(tmp_path: Path) -> None:
    from_transcript(TRANSCRIPTS / NAMES[0], tmp_path / "c")
    capture = ncclscope.open(tmp_path / "c")
    assert not (tmp_path / "c" / "model").exists()
    capture.completeness()
    assert (tmp_path / "c" / "model").exists()


def test_a_path_may_be_a_glob_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from_transcript(TRANSCRIPTS / NAMES[0], tmp_path / "job-1")
    monkeypatch.chdir(tmp_path)
    assert ncclscope.open(str(tmp_path / "job-*")).path == tmp_path / "job-1"
    assert ncclscope.open().path.resolve() == tmp_path / "job-1"
    with pytest.raises(UsageError, match="no such directory"):
        ncclscope.open("elsewhere")


@pytest.mark.parametrize("table", SHOWN)
def test_tables_have_the_columns_of_the_schema(capture: Capture, table: str) -> None:
    relation = capture.table(table)
    columns, added = shown_columns(table), list(added_columns(table))
    assert relation.columns == [*(name_in_python(column.name) for column in columns), *added]
    types = ["VARCHAR" if c.words else SQL_TYPES[c.dtype].upper() for c in columns]
    assert [str(kind) for kind in relation.types][: len(types)] == types


def test_operations_have_names_for_codes_and_null_for_none(capture: Capture) -> None:
    model, found = with_periodic_steps(capture.model), capture.operations.fetchall()
    columns = {name: number for number, name in enumerate(capture.operations.columns)}
    for name, raw in model.tables["operations"].items():
        for row, code in zip(found, raw.tolist(), strict=True):
            value = row[columns[name_in_python(name)]]
            words = model.words.get(name)
            assert value == (None if code == -1 else words[code] if words else code), name
    assert [row[0] for row in found] == list(range(len(found)))
    assert {row[columns["communicator_name"]] for row in found} == {"world"}
    assert {row[columns["host"]] for row in found} <= set(model.nodes)


def test_names_may_hold_quotes(job: Capture) -> None:
    names = dict(job.communicators.project("name, name_inferred").fetchall())
    assert names == {"world": 1, "left": 0, "it's": 0}
    query = "select count(*) from operations where communicator_name = 'it''s'"
    assert job.sql(query).fetchall() == [(2 * 200,)]


def test_channels_give_the_times_of_their_operations_on_the_one_clock(job: Capture) -> None:
    odd = job.sql("""
        select count(*), sum(cast(c.s = o.start_ns and c.e = o.end_ns as int)), min(c.n)
        from operations o join (
            select operation, min(start_ns) as s, max(end_ns) as e, count(*) as n
            from channels group by operation) c on c.operation = o.operation
    """).fetchall()
    assert odd == [(1600, 1600, 2)]


def test_channels_of_real_jobs_give_the_times_of_their_operations(capture: Capture) -> None:
    compared, equal = capture.sql("""
        select count(*), count(*) filter (c.s = o.start_ns and c.e = o.end_ns)
        from operations o join (
            select operation, min(start_ns) as s, max(end_ns) as e from channels group by operation
        ) c on c.operation = o.operation
        where o.source in ('gpu', 'gpu-repaired', 'gpu-partial', 'gpu-early')
    """).fetchall()[0]
    assert equal == compared
    timed = capture.completeness().gpu_timed
    inferred = capture.sql("select count(*) from operations where inferred = 1").fetchall()[0][0]
    assert compared >= timed - inferred


def test_launches_are_those_of_operations(job: Capture) -> None:
    odd = job.sql("""
        select count(*) from operations o left join launches l
        on l.process = o.process and l.start_ns = o.launch_ns
        where l.end_ns is null or l.end_ns <> o.launch_end_ns or l.communicator <> o.communicator
    """).fetchall()
    assert odd == [(0,)]
    assert job.sql("select sum(operations) from launches").fetchall() == [(1600,)]


def test_proxies_are_as_dump_shows_them(capture: Capture) -> None:
    columns = {
        "ProxyStepSendGPUWait": "gpu_since_ns",
        "ProxyStepSendPeerWait": "peer_since_ns",
        "ProxyStepSendWait": "network_since_ns",
        "ProxyStepRecvWait": "network_since_ns",
        "ProxyStepRecvFlushWait": "flush_since_ns",
        "ProxyStepRecvGPUWait": "gpu_since_ns",
    }
    ops, steps = set(), set()
    for number, process in enumerate(open_capture(capture.path).processes):
        for event in events_of(process):
            common = (number, event["start_ns"], event["stop_ns"])
            if event["event"] == "ProxyOp":
                fields = event["fields"]
                ops.add(
                    (
                        *common,
                        fields["peer"],
                        fields["channelId"],
                        fields["nSteps"],
                        "send" if fields["isSend"] else "recv",
                    )
                )
            if event["event"] == "ProxyStep":
                states = {columns[state["name"]]: state["t_ns"] for state in event["states"]}
                steps.add(
                    (
                        *common,
                        event["fields"]["step"],
                        *(states.get(name) for name in sorted(set(columns.values()))),
                    )
                )
    found = "process, start_ns, end_ns"
    assert (
        set(
            capture.proxy_ops.project(
                f"{found}, peer_communicator_rank, channel, steps, form"
            ).fetchall()
        )
        == ops
    )
    waits = ", ".join(sorted(set(columns.values())))
    assert set(capture.proxy_steps.project(f"{found}, step, {waits}").fetchall()) == steps
    assert capture.sql("select count(*) from proxy_steps where operation is null").fetchall() == [
        (0,)
    ]


def test_clocks_are_kept_with_the_model(job: Capture) -> None:
    clocks, again = job.model.clocks, open_model(job.path).clocks
    assert len(clocks) == len(again) == 2
    times = np.array([10**9, 5 * 10**12, 10**13], np.int64)
    for clock, other in zip(clocks, again, strict=True):
        assert (clock.to_reference(times) == other.to_reference(times)).all()
    (tied, error), *_ = job.nodes.filter("node = 1").project("tied, clock_error_ns").fetchall()
    assert tied == 1
    assert 0 < error < 10**6


def test_tables_are_handed_over(capture: Capture) -> None:
    rows = capture.operations.fetchall()
    assert capture.to_polars().rows() == rows
    assert capture.to_arrow("communicators").to_pylist()[0]["name"] == "world"
    assert capture.to_pandas("communicators")["name"].tolist()[0] == "world"
    frame = polars.DataFrame({"function": ["AllReduce"], "wanted": [True]})
    assert len(frame) == 1
    joined = capture.sql("select count(*) from operations join frame using (function)").fetchall()
    assert joined[0][0] > 0


def test_what_is_missing_is_named(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"there is no table nonsense\. Tables are operations, "):
        capture.to_polars("nonsense")
    with pytest.raises(duckdb.Error, match="nonsense"):
        capture.sql("select * from nonsense")
    for module, hand_over in (
        ("polars", capture.to_polars),
        ("pyarrow", capture.to_arrow),
        ("pandas", capture.to_pandas),
        ("matplotlib", capture.plot.waiting_by_rank),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        monkeypatch.setitem(sys.modules, f"{module}.figure", None)
        with pytest.raises(NcclscopeError, match=f"`pip install {module}`"):
            hand_over()


def test_shown_is_the_completeness_line_and_a_table(capture: Capture) -> None:
    line = capture.completeness().line()
    assert str(capture.completeness()) == line
    assert line in repr(capture)
    assert "AllReduce" in repr(capture)
    assert "<td>AllReduce</td>" in capture._repr_html_()


def test_what_is_shown_is_escaped(tmp_path: Path) -> None:
    spec = SyntheticSpec(processes=2, operations=3, communicator_names=("<b>\x1b[31m",))
    synthetic(tmp_path / "<i>job", spec)
    capture = ncclscope.open(tmp_path / "<i>job")
    assert "\x1b" not in repr(capture) + capture._repr_html_()
    assert "<b>\\x1b" in repr(capture)
    assert "&lt;b&gt;" in capture._repr_html_()
    assert "<i>" not in capture._repr_html_()


def test_operations_name_their_events_as_dump_does(capture: Capture) -> None:
    kinds = {"CollApi", "P2pApi", "Coll", "P2p"}
    events = {
        (number, event["id"], event["start_ns"])
        for number, process in enumerate(open_capture(capture.path).processes)
        for event in events_of(process)
        if event["event"] in kinds
    }
    rows = capture.sql("""
        select process, (event >> 37) || '.' || (event & ((1 << 37::bigint) - 1)),
            coalesce(call_ns, enqueue_ns)
        from operations where inferred = 0
    """).fetchall()
    assert set(rows) <= events
    assert len(set(rows)) == len(rows)


def test_tables_come_before_variables_of_the_caller(tmp_path: Path) -> None:
    from_transcript(TRANSCRIPTS / NAMES[0], tmp_path / "c")
    made = ncclscope.open(tmp_path / "c").sql("select count(*) from channels").fetchall()
    channels = polars.DataFrame({"channel": [1]})
    other = ncclscope.open(tmp_path / "c")
    assert other.sql("select count(*) from channels").fetchall() == made != [(len(channels),)]
    frame = polars.DataFrame({"channel": [1]})
    assert other.sql("select count(*) from frame").fetchall() == [(len(frame),)]
