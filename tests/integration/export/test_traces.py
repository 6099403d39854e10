"""Perfetto and Chrome traces, loaded in Perfetto's own trace processor and asked: what it finds is
what the model holds.
"""

import gzip
import itertools
import json
import signal
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import ncclscope as package
from ncclscope.analysis.selection import Selection
from ncclscope.api import Capture
from ncclscope.export import parallel_ranks, trace_model
from ncclscope.export.chrome import write_chrome
from ncclscope.export.perfetto import write_perfetto
from ncclscope.export.result import ExportResult
from ncclscope.humanize import printable
from ncclscope.nccl.datatypes import DATATYPES
from ncclscope.nccl.torch_names import COLLECTIVE_NAMES
from tests.support.player import TRANSCRIPTS, ncclscope
from tests.support.trace_processor import COMPLAINTS, needs_trace_processor, query
from tests.support.writer import SyntheticSpec, Work, from_transcript, synthetic

pytestmark = needs_trace_processor()
WRITERS: dict[str, tuple[Callable[..., ExportResult], str]] = {
    "perfetto": (write_perfetto, "t.pftrace"),
    "chrome": (write_chrome, "t.json.gz"),
}
NASTY = '<b>"tp"\'\\u0041\n\x01\x00é\u2028\ud800'.encode("utf-8", "replace").decode() + "x" * 10_000
CASES = ("2.28.9-v5-4ranks", "2.28.9-v5-3ranks-hang", "synthetic")

SLICES = """
    select s.id, s.ts, s.dur, s.name, s.category, s.track_id, coalesce(p.pid, q.pid) as pid,
        coalesce(t.name, h.name) as track, h.tid
    from slice s join track t on t.id = s.track_id
    left join process_track pt on pt.id = t.id left join process p on p.upid = pt.upid
    left join thread_track tt on tt.id = t.id left join thread h on h.utid = tt.utid
    left join process q on q.upid = h.upid order by s.id"""
ARGUMENTS = """
    select s.id, a.key, a.int_value, a.string_value from slice s join args a using (arg_set_id)"""
FLOWS = "select slice_out, slice_in from flow"
COUNTERS = """
    select p.pid, t.name, c.ts, c.value from counter c join process_counter_track t
    on t.id = c.track_id join process p using (upid) order by c.ts, c.id"""
PROCESSES = "select pid, name from process where pid > 0 order by pid"


@dataclass
class Loaded:
    """A trace as the trace processor has it."""

    capture: Capture
    slices: dict[int, dict[str, Any]]  # by id, with arguments under "args"
    flows: list[tuple[int, int]]
    counters: list[dict[str, Any]]
    processes: list[dict[str, Any]]

    def of(self, category: str) -> list[dict[str, Any]]:
        return [one for one in self.slices.values() if one["category"] == category]

    def operations(self) -> dict[int, dict[str, Any]]:
        """Slices of operations by their rows."""
        return {one["args"]["operation"]: one for one in self.of("nccl")}


def make(name: str, path: Path) -> Capture:
    if name == "synthetic":
        spec = SyntheticSpec(
            processes=3,
            operations=40,
            communicators=((0, 1, 2), (0, 1)),
            communicator_names=(NASTY, "tp"),
            mix=(
                Work("AllReduce", 4096),
                Work("AllGather", 512, "ncclBfloat16"),
                Work("SendRecv", 64),
            ),
        )
        synthetic(path, spec)
    else:
        from_transcript(TRANSCRIPTS / name, path)
    return package.open(path)


def load(capture: Capture, trace: Path) -> Loaded:
    complaints, slices, arguments, flows, counters, processes = query(
        trace, COMPLAINTS, SLICES, ARGUMENTS, FLOWS, COUNTERS, PROCESSES
    )
    assert complaints == []
    by_id = {one["id"]: one | {"args": {}} for one in slices}
    for one in arguments:
        key = one["key"].removeprefix("debug.").removeprefix("args.")
        text = one["string_value"] is not None
        by_id[one["id"]]["args"][key] = one["string_value"] if text else one["int_value"]
    joined = [(one["slice_out"], one["slice_in"]) for one in flows]
    return Loaded(capture, by_id, joined, counters, processes)


@pytest.fixture(scope="module", params=CASES)
def capture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Capture:
    return make(request.param, tmp_path_factory.mktemp("captures") / request.param)


@pytest.fixture(scope="module", params=WRITERS)
def loaded(
    request: pytest.FixtureRequest, capture: Capture, tmp_path_factory: pytest.TempPathFactory
) -> Loaded:
    write, name = WRITERS[request.param]
    trace = tmp_path_factory.mktemp("traces") / name
    rows, trace_model.ROWS = trace_model.ROWS, 7  # many pieces, which must fit together
    try:
        written = write(capture.model, Selection(), trace)
    finally:
        trace_model.ROWS = rows
    assert written == ExportResult(len(capture.operations.fetchall()))
    return load(capture, trace)


def operations(capture: Capture, condition: str = "true") -> list[dict[str, Any]]:
    relation = capture.operations.filter(condition)
    return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


def test_slices_are_operations(loaded: Loaded) -> None:
    expected = operations(loaded.capture)
    found = loaded.operations()
    assert len(found) == len(loaded.of("nccl")) == len(expected) > 10
    for row in expected:
        one = found[row["operation"]]
        began = next(
            row[name]
            for name in ("start_ns", "launch_ns", "call_ns", "enqueue_ns")
            if row[name] is not None
        )
        assert (one["name"], one["ts"]) == (row["function"], began)
        if row["state"] in ("in flight", "never launched"):
            assert one["dur"] == -1
        else:
            assert one["dur"] == (row["duration_ns"] or 0)
        assert one["pid"] == row["global_rank"] + 1
        shown = printable(loaded.capture.model.communicator_names[row["communicator"]])
        assert one["track"] in (shown, f"{shown} (2)", f"{shown} (3)") or one["track"].startswith(
            shown
        )


def test_arguments_are_the_models(loaded: Loaded) -> None:
    ranks = dict(loaded.capture.sql("select communicator, ranks from communicators").fetchall())
    found, names = loaded.operations(), loaded.capture.model.communicator_names
    for row in operations(loaded.capture):
        args = dict(found[row["operation"]]["args"])
        size = ranks[row["communicator"]]
        expected = {
            "Collective name": COLLECTIVE_NAMES[row["function"]],
            "Process Group Name": printable(names[row["communicator"]]),
            "Seq": row["call_order"], "Group size": size, "Rank": row["communicator_rank"],
            "In msg nelems": row["count"] * (size if row["function"] in ("ReduceScatter", "AlltoAll") else 1),
            "Out msg nelems": row["count"] * (size if row["function"] in ("AllGather", "AlltoAll") else 1),
            "dtype": DATATYPES[row["datatype"]].torch,
            "Src Rank": row["peer_communicator_rank"] if row["function"] == "Recv" else None,
            "Dst Rank": row["peer_communicator_rank"] if row["function"] == "Send" else None,
            "replay": row["replay"] or None, "inferred": row["inferred"] or None, "part_of": row["part_of"],
            "state": row["state"] if row["state"] != "done" else None,
            "reason": row["reason"] or None,
        }  # fmt: skip
        expected["root"] = row["root_communicator_rank"]
        for name in (
            "size_bytes",
            "algorithm",
            "protocol",
            "channels",
            "wait_ns",
            "wire_ns",
            "source",
            "sequence",
            "part_of",
            "operation",
        ):
            expected[name] = row[name]
        assert args == {name: value for name, value in expected.items() if value is not None}


def test_slices_of_a_track_do_not_overlap(loaded: Loaded) -> None:
    by_track = defaultdict(list)
    for one in loaded.slices.values():
        if one["dur"] != 0:
            by_track[one["track_id"]].append((one["ts"], one["dur"]))
    for spans in by_track.values():
        spans.sort()
        for (start, length), (after, _) in itertools.pairwise(spans):
            assert length >= 0
            assert start + length <= after


def test_flows_join_instances(loaded: Loaded) -> None:
    """Through all operations of an instance, from the first to the last to begin."""
    found = loaded.operations()
    row_of = {one["id"]: row for row, one in found.items()}
    joined = {(row_of[a], row_of[b]) for a, b in loaded.flows if a in row_of and b in row_of}
    parents = dict(loaded.capture.sql("select operation, part_of from operations").fetchall())
    instances = defaultdict(list)
    for row in operations(loaded.capture, "instance is not null"):
        instances[row["instance"]].append(row["operation"])
    expected = set()
    for rows in instances.values():
        rows.sort(key=lambda row: (found[row]["ts"], row))
        expected |= set(itertools.pairwise(rows))
    own = {pair for pair in joined if parents[pair[1]] != pair[0] and parents[pair[0]] != pair[1]}
    assert own == expected
    assert len(own) > 4


def test_flows_join_children_to_parents(loaded: Loaded) -> None:
    found = loaded.operations()
    joined = defaultdict(set)
    for a, b in loaded.flows:
        joined[a].add(b)
        joined[b].add(a)
    children = 0
    for category in ("call", "channel", "proxy"):
        for one in loaded.of(category):
            assert joined[one["id"]] == {found[one["args"]["operation"]]["id"]}
            children += 1
    for row in operations(loaded.capture, "part_of is not null"):
        if not (found[row["part_of"]]["dur"] and found[row["operation"]]["dur"]):
            continue  # Chrome's arrows cannot end in moments
        assert found[row["part_of"]]["id"] in joined[found[row["operation"]]["id"]]
    assert children > 30


def test_what_operations_consist_of_is_there(loaded: Loaded) -> None:
    capture = loaded.capture
    assert len(loaded.of("call")) == len(
        operations(capture, "call_ns is not null and part_of is null")
    )
    for category, table in (
        ("channel", "channels"),
        ("proxy", "proxy_ops"),
        ("step", "proxy_steps"),
    ):
        relation = capture.table(table)
        rows = [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
        spans = []
        for row in rows:
            start, end = row["start_ns"], row["end_ns"]
            if start is None:
                start, end = row["seen_start_ns"], row["seen_end_ns"]
            spans.append((start, -1 if end is None else end - start, row["operation"]))
        found = [
            (one["ts"], one["dur"], one["args"].get("operation")) for one in loaded.of(category)
        ]
        assert sorted(found) == sorted(spans)
    names = {one["track"].rpartition(": ")[2] for one in loaded.of("channel")}
    assert any(name.endswith("channel 0") for name in names)


def test_counters_count(loaded: Loaded) -> None:
    """Bytes in flight and bus bandwidth, at every begin and end of an operation."""
    for rank in {row["global_rank"] for row in operations(loaded.capture)}:
        rows = [
            row
            for row in operations(loaded.capture, f"global_rank = {rank} and part_of is null")
            if row["state"] == "in flight" or (row["duration_ns"] or 0) > 0
        ]
        changes = defaultdict(int)
        for row in rows:
            one = loaded.operations()[row["operation"]]
            changes[one["ts"]] += row["size_bytes"]
            if one["dur"] > 0:
                changes[one["ts"] + one["dur"]] -= row["size_bytes"]
        value, expected = 0, {}
        for time in sorted(changes):
            value += changes[time]
            expected[time] = value
        own = [one for one in loaded.counters if one["pid"] == rank + 1]
        last = {one["ts"]: one["value"] for one in own if one["name"].startswith("bytes in flight")}
        assert {time: last[time] for time in expected} == expected
        bandwidth = [one["value"] for one in own if one["name"].startswith("bus bandwidth")]
        assert bandwidth[-1] == 0 or rows[-1]["state"] == "in flight"
        best = max(
            (row["size_bytes"] / row["duration_ns"] for row in rows if row["source"] == "gpu"),
            default=0,
        )
        assert max(bandwidth) * 2 >= best * 1e9 * 0.5


def test_no_pid_or_tid_is_zero(loaded: Loaded) -> None:
    ranks = sorted({row["global_rank"] for row in operations(loaded.capture)})
    assert loaded.processes == [{"pid": rank + 1, "name": f"rank {rank}"} for rank in ranks]
    assert all(one["pid"] > 0 and one["tid"] != 0 for one in loaded.slices.values())


@pytest.mark.parametrize("form", WRITERS)
def test_workers_write_the_same(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = make("synthetic", tmp_path / "c")
    write = WRITERS[form][0]
    write(capture.model, Selection(), tmp_path / "one")
    monkeypatch.setattr(parallel_ranks, "_WORTH_WORKERS", 0)
    monkeypatch.setattr(parallel_ranks.os, "sched_getaffinity", lambda _: {0, 1})
    seen: list[tuple[int, int]] = []
    write(capture.model, Selection(), tmp_path / "two", progress=lambda *at: seen.append(at))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_a_worker_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = make("synthetic", tmp_path / "c")
    monkeypatch.setattr(parallel_ranks, "_WORTH_WORKERS", 0)
    monkeypatch.setattr(parallel_ranks.os, "sched_getaffinity", lambda _: {0, 1})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ncclscope.export.trace_file.layers_of", full)
    before = signal.signal(signal.SIGTERM, lambda *_: None)  # as `serve` does: workers must end
    try:
        with pytest.raises(package.errors.NcclscopeError, match=r"cannot write .*: No space left"):
            write_perfetto(capture.model, Selection(), tmp_path / "t.pftrace")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c"]


def test_a_window_of_some_ranks(tmp_path: Path) -> None:
    capture = make("2.28.9-v5-4ranks", tmp_path / "c")
    trace = tmp_path / "t.json"
    done = ncclscope(
        "export", capture.path, "-o", trace, "--rank", "1", "--op", "reduce", "--operations-only"
    )
    assert done.returncode == 0, done.stderr
    events = json.loads(trace.read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    expected = operations(capture, "global_rank = 1 and function = 'Reduce'")
    assert [event["args"]["operation"] for event in slices] == [
        row["operation"] for row in expected
    ]
    assert {event["pid"] for event in slices} == {2}
    assert f"written: {trace}: {len(expected)} operations" in done.stderr
    done = ncclscope(
        "export", capture.path, "-o", tmp_path / "t.pftrace", "--last", "3ms", "--comm", "world"
    )
    assert done.returncode == 0, done.stderr
    late = load(capture, tmp_path / "t.pftrace").operations()
    last = max(one["ts"] + one["dur"] for one in late.values())
    assert 0 < len(late) < len(capture.operations.fetchall())
    assert all(one["ts"] >= last - 3_100_000 for one in late.values())


def test_ranks_of_one_process_are_processes_of_the_trace(tmp_path: Path) -> None:
    spec = SyntheticSpec(processes=2, ranks_per_process=2, operations=20)
    synthetic(tmp_path / "c", spec)
    capture = package.open(tmp_path / "c")
    written = write_chrome(capture.model, Selection(), tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    found = [
        (e["args"]["operation"], e["pid"]) for e in events if e.get("cat") == "nccl" and "args" in e
    ]
    rows = operations(capture)
    assert sorted(found) == [(row["operation"], row["global_rank"] + 1) for row in rows]
    assert written.count == len(rows) == 80
    channels = [event for event in events if event.get("cat") == "channel" and event["ph"] == "X"]
    assert len(channels) == len(capture.channels.fetchall())


def test_perfetto_is_smaller_than_chrome(tmp_path: Path) -> None:
    capture = make("2.28.9-v5-4ranks", tmp_path / "c")
    for only in (True, False):
        sizes = []
        for write, _ in WRITERS.values():
            write(capture.model, Selection(), tmp_path / "t", operations_only=only)
            sizes.append(len(gzip.compress((tmp_path / "t").read_bytes())))
        assert sizes[0] <= sizes[1]


def test_options_of_other_forms_are_refused(tmp_path: Path) -> None:
    capture = make("synthetic", tmp_path / "c")
    done = ncclscope("export", capture.path, "-o", tmp_path / "x.csv", "--operations-only")
    assert done.returncode == 2
    assert "cannot use --operations-only with csv. It is for perfetto and chrome" in done.stderr
