"""Logs in the forms of other plugins: callbacks against the transcripts they were recorded from,
Inspector's lines against its keys and the model.
"""

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import ncclscope as package
from ncclscope.analysis.selection import Selection
from ncclscope.export.callbacks import write_callbacks
from ncclscope.export.inspector import TIMING_SOURCES, write_inspector
from ncclscope.export.parquet import write_parquet
from tests.support.player import (
    INTERFACE_FOLDERS,
    TRANSCRIPTS,
    dump,
    ncclscope,
    play_job,
    read_transcript,
    transcript_files,
)
from tests.support.writer import SyntheticSpec, from_transcript, synthetic

Line = dict[str, Any]
ALL = Selection()
HEADER = {"id": str, "comm_name": str, "rank": int, "n_ranks": int, "nnodes": int}
METADATA = {
    "inspector_output_format_version": str, "git_rev": str, "rec_mechanism": str, "dump_timestamp_us": int,
    "hostname": str, "pid": int,
}  # fmt: skip
COLLECTIVE = {
    "coll": str, "coll_sn": int, "coll_msg_size_bytes": int, "coll_exec_time_us": int, "coll_timing_source": str,
    "coll_algobw_gbs": float, "coll_busbw_gbs": float,
}  # fmt: skip
MESSAGE = {
    "p2p": str, "p2p_sn": int, "p2p_peer": int, "p2p_msg_size_bytes": int, "p2p_exec_time_us": int,
    "p2p_timing_source": str, "p2p_algobw_gbs": float, "p2p_busbw_gbs": float,
}  # fmt: skip


def read(file: Path) -> list[Line]:
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    return [json.loads(line) for line in data.splitlines()]


# ---- callbacks ----
def by_thread(lines: list[Line]) -> list[list[Line]]:
    """Starts, states and stops per thread, threads in the order in which they first start one."""
    threads: dict[int, list[Line]] = defaultdict(list)
    owner = {line["h"]: line["tid"] for line in lines if line["cb"] == "start"}
    for line in lines:
        if line["cb"] in ("start", "state", "stop"):
            threads[owner[line["h"]]].append(line)
    return list(threads.values())


def unlike(line: Line, handles: dict[int, int]) -> Line:
    """A line without what differs from run to run: times, ids of threads, serial numbers."""
    kept = {key: value for key, value in line.items() if key not in ("t", "tid", "pid")}
    for key in ("h", "p", "group"):
        if key in kept:
            kept[key] = handles[kept[key]]
    return kept


def check_callbacks(expected: list[Line], found: list[Line]) -> None:
    lives = [[unlike(line, {}) for line in lines if "h" not in line] for lines in (expected, found)]
    assert lives[0] == lives[1]
    pairs = list(zip(by_thread(expected), by_thread(found), strict=True))
    handles = {0: 0}
    for theirs, ours in pairs:
        starts = [
            [line["h"] for line in lines if line["cb"] == "start"] for lines in (ours, theirs)
        ]
        handles |= dict(zip(*starts, strict=True))
    same = {line["h"]: line["h"] for line in expected if "h" in line} | {0: 0}
    for theirs, ours in pairs:
        for our, their in zip(ours, theirs, strict=True):
            # The logger of old interfaces left these out.
            silent = {"send", "recv", "buff", "collnet", "nvls"} - set(their)
            record = {
                key: value
                for key, value in our.items()
                if key not in silent or value not in (0, "0")
            }
            assert unlike(record, handles) == unlike(their, same)
    times = [line["t"] for line in found]
    assert times == sorted(times)


@pytest.mark.parametrize("folder", INTERFACE_FOLDERS)
def test_callbacks_are_the_transcript(folder: str, tmp_path: Path) -> None:
    from_transcript(TRANSCRIPTS / folder, tmp_path / "c")
    written = write_callbacks(package.open(tmp_path / "c").model, ALL, tmp_path / "logs")
    count = 0
    for rank, file in enumerate(transcript_files(folder)):
        (log,) = (tmp_path / "logs").glob(f"rank{rank}-*.jsonl.gz")
        expected, found = read_transcript(file), read(log)
        check_callbacks(expected, found)
        count += len(found)
    assert (written.count, written.unit) == (count, "callback")
    assert len(list((tmp_path / "logs").iterdir())) == len(transcript_files(folder))


def test_callbacks_can_be_played_again(tmp_path: Path) -> None:
    """Through the real plugin: a recording of the exported log is a recording of the same calls."""
    assert set(play_job(transcript_files("2.28.9-v5-2ranks"), tmp_path / "a")) == {0}
    done = ncclscope("export", tmp_path / "a", "--to", "callbacks", "-o", tmp_path / "logs")
    assert done.returncode == 0, done.stderr
    assert "callbacks, " in done.stderr
    assert set(play_job(sorted((tmp_path / "logs").iterdir()), tmp_path / "b")) == {0}

    def records(capture: Path) -> list[tuple[Any, ...]]:
        return sorted(
            (
                event["rank"],
                event["event"],
                json.dumps(event["fields"], sort_keys=True),
                len(event["states"]),
            )
            for event in dump(capture)
            if event["event"] not in ("ProxyOp", "Coll", "P2p")  # they name pids and other events
        )

    assert records(tmp_path / "a") == records(tmp_path / "b")


def test_callbacks_of_a_window(tmp_path: Path) -> None:
    capture = tmp_path / "c"
    from_transcript(TRANSCRIPTS / "2.28.9-v5-2ranks", capture)
    model = package.open(capture).model
    write_callbacks(model, ALL, tmp_path / "all")
    (whole,) = (read(file) for file in (tmp_path / "all").glob("rank1-*"))
    window = Selection(
        ranks=(1,), since_ns=whole[len(whole) // 3]["t"], until_ns=whole[len(whole) // 2]["t"]
    )
    write_callbacks(model, window, tmp_path / "some")
    (file,) = (tmp_path / "some").iterdir()
    assert file.name.startswith("rank1-")
    some = [line for line in read(file) if "h" in line]
    assert 0 < len(some) < len(whole)
    assert all(line in whole for line in some)  # with the handles of the whole
    world = Selection(communicators=(0,))
    write_callbacks(model, world, tmp_path / "world")
    for file in (tmp_path / "world").iterdir():
        assert {line["ctx"] for line in read(file) if "ctx" in line} == {1}


def test_callbacks_need_the_capture(tmp_path: Path) -> None:
    from_transcript(TRANSCRIPTS / "2.28.9-v5-2ranks", tmp_path / "c")
    write_parquet(package.open(tmp_path / "c").model, ALL, tmp_path / "d")
    done = ncclscope("export", tmp_path / "d", "--to", "callbacks", "-o", tmp_path / "x")
    assert done.returncode == 2
    assert "it holds no events. Name the capture, not" in done.stderr
    done = ncclscope(
        "export", tmp_path / "c", "--to", "callbacks", "--op", "reduce", "-o", tmp_path / "x"
    )
    assert "cannot select callbacks by --op" in done.stderr
    assert not (tmp_path / "x").exists()
    done = ncclscope("export", tmp_path / "d", "--to", "perfetto", "-o", tmp_path / "x")
    assert done.returncode == 0, done.stderr


# ---- Inspector ----
def check_types(found: Line, expected: dict[str, type]) -> None:
    assert list(found) == list(expected)
    assert {key: type(value) for key, value in found.items()} == expected


@pytest.mark.parametrize("folder", ["2.28.9-v5-4ranks", "2.32.3-v7-2ranks-one-host"])
def test_inspector_lines(folder: str, tmp_path: Path) -> None:
    from_transcript(TRANSCRIPTS / folder, tmp_path / "c")
    capture = package.open(tmp_path / "c")
    written = write_inspector(capture.model, ALL, tmp_path / "logs")
    rows = capture.sql(
        "select o.*, c.id, c.ranks, p.pid, p.host from operations o join communicators c using (communicator) "
        "join processes p using (process) where inferred = 0 order by process, end_ns, operation"
    )
    expected = [dict(zip(rows.columns, row, strict=True)) for row in rows.fetchall()]
    timed = [row for row in expected if row["duration_ns"] is not None]
    assert (written.count, written.untimed) == (len(timed), len(expected) - len(timed))
    assert written.count > 50
    lines = []
    for process in capture.model.processes:
        lines += read(tmp_path / "logs" / f"{process.host}-pid{process.pid}.log")
    for line, row in zip(lines, timed, strict=True):
        check_types(line["header"], HEADER)
        check_types(line["metadata"], METADATA)
        message = row["form"] in ("send", "recv")
        assert list(line) == ["header", "metadata", "p2p_perf" if message else "coll_perf"]
        perf = line["p2p_perf" if message else "coll_perf"]
        check_types(perf, MESSAGE if message else COLLECTIVE)
        prefix = "p2p" if message else "coll"
        assert int(line["header"]["id"], 16) == row["id"] % 2**64
        assert (line["header"]["rank"], line["metadata"]["pid"]) == (
            row["communicator_rank"],
            row["pid"],
        )
        assert perf[prefix] == row["function"]
        per_rank = row["ranks"] if row["function"] in ("AllGather", "ReduceScatter") else 1
        assert perf[f"{prefix}_msg_size_bytes"] * per_rank == row["size_bytes"]
        assert abs(perf[f"{prefix}_exec_time_us"] * 1000 - row["duration_ns"]) <= 500
        assert perf[f"{prefix}_timing_source"] == TIMING_SOURCES[row["source"]]
        bandwidth = row["size_bytes"] / row["duration_ns"] if row["duration_ns"] else 0
        assert perf[f"{prefix}_algobw_gbs"] == pytest.approx(bandwidth, abs=1e-6)
        if row["function"] == "AllReduce":
            factor = 2 * (row["ranks"] - 1) / row["ranks"]
            assert perf["coll_busbw_gbs"] == pytest.approx(bandwidth * factor, abs=2e-6)
        wall = row["end_ns"] + capture.realtime_offset_ns
        assert line["metadata"]["dump_timestamp_us"] == wall // 1000


def test_inspector_verbose_lines(tmp_path: Path) -> None:
    from_transcript(TRANSCRIPTS / "2.28.9-v5-4ranks", tmp_path / "c")
    capture = package.open(tmp_path / "c")
    done = ncclscope(
        "export",
        capture.path,
        "--to",
        "inspector",
        "--verbose",
        "--rank",
        "2",
        "-o",
        tmp_path / "logs",
    )
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "logs").iterdir()
    kernels = 0
    for line in read(file):
        prefix = "coll" if "coll_perf" in line else "p2p"
        perf = line[f"{prefix}_perf"]
        for what in ("sn", "ts"):
            trace = perf[f"event_trace_{what}"]
            assert list(trace) == [
                f"{prefix}_start_{what}",
                f"{prefix}_stop_{what}",
                "kernel_events",
            ]
            for event in trace["kernel_events"]:
                assert list(event) == [
                    "channel_id", f"kernel_start_{what}", f"kernel_stop_{what}", f"kernel_record_{what}",
                ]  # fmt: skip
                kernels += 1
        serials = [value for key, value in perf["event_trace_sn"].items() if key != "kernel_events"]
        for event in perf["event_trace_sn"]["kernel_events"]:
            serials += [value for key, value in event.items() if key != "channel_id"]
        assert sorted(serials) == list(range(1, len(serials) + 1))
    (expected,) = capture.sql(
        "select count(*) from channels c join operations o using (operation) "
        "where o.global_rank = 2 and o.duration_ns is not null and o.inferred = 0"
    ).fetchall()
    assert kernels == 2 * expected[0] > 50


def test_names_from_the_job_stay_inside_their_strings(tmp_path: Path) -> None:
    name = '","pid":0}\n<script>\x00\u2028' + "y" * 10_000
    synthetic(tmp_path / "c", SyntheticSpec(processes=2, operations=3, communicator_names=(name,)))
    model = package.open(tmp_path / "c").model
    write_inspector(model, ALL, tmp_path / "logs")
    write_callbacks(model, ALL, tmp_path / "calls")
    kept = model.communicator_names[0]
    assert len(kept) > 10_000
    for file in (tmp_path / "logs").iterdir():
        for line in read(file):
            assert line["header"]["comm_name"].isprintable()
            assert line["header"]["comm_name"].endswith("y" * 10_000)
    for file in (tmp_path / "calls").iterdir():
        assert [line["name"] for line in read(file) if line["cb"] == "init"] == [name]


@pytest.mark.parametrize(
    ("form", "what"),
    [("inspector", "set of Inspector's logs"), ("callbacks", "set of callback logs")],
)
def test_directories_are_replaced_only_when_told(form: str, what: str, tmp_path: Path) -> None:
    synthetic(tmp_path / "c", SyntheticSpec(processes=2, operations=3))
    export = ("export", tmp_path / "c", "--to", form, "-o", tmp_path / "logs")
    assert ncclscope(*export).returncode == 0
    again = ncclscope(*export)
    assert again.returncode == 2
    assert f"there is a {what} already. Use --force to replace it" in again.stderr
    assert ncclscope(*export, "--force").returncode == 0
    (tmp_path / "logs" / "thesis.tex").write_text("")
    again = ncclscope(*export, "--force")
    assert f"it exists and is not a {what}" in again.stderr
    assert (tmp_path / "logs" / "thesis.tex").exists()
    assert "to stdout: it is a directory" in ncclscope(*export[:-1], "-").stderr
