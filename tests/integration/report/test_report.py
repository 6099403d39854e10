"""`ncclscope report` on captures of real jobs, from operations and from counters."""

import csv
import functools
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.player import (
    FOLDERS,
    INTERFACE_FOLDERS,
    TRANSCRIPTS,
    ncclscope,
    play_job,
    transcript_files,
)
from tests.support.writer import from_transcript

STRAGGLER = "2.28.9-v5-4ranks-straggler"
TWO_RANKS = "2.28.9-v5-2ranks"


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of captures, made as they are asked for."""
    return tmp_path_factory.mktemp("captures")


def capture_of(captures: Path, folder: str) -> Path:
    capture = captures / folder
    if not capture.exists():
        from_transcript(TRANSCRIPTS / folder, capture)
    return capture


@functools.cache
def as_json(*arguments: str | Path) -> dict[str, Any]:
    printed = ncclscope("report", "--json", *arguments)
    assert printed.returncode == 0, printed.stderr
    made: dict[str, Any] = json.loads(printed.stdout)
    return made


def calls_by_key(made: dict[str, Any]) -> Counter[tuple[str, int]]:
    """Calls of functions that look alike in events and in counters."""
    found: Counter[tuple[str, int]] = Counter()
    for row in made["operations"]:
        if row["function"] not in ("Send", "Recv", "AlltoAll", "Gather", "Scatter"):
            found[row["function"], row["size_bytes"]] += row["calls"]
    return found


def calls_by_function(made: dict[str, Any]) -> Counter[str]:
    found: Counter[str] = Counter()
    for (function, _), calls in calls_by_key(made).items():
        found[function] += calls
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_rows_add_up_to_completeness(folder: str, captures: Path) -> None:
    made = as_json(capture_of(captures, folder))
    for name in ("calls", "operations", "in_flight"):
        assert sum(row[name] for row in made["operations"]) == made["completeness"][name]
    timed = ("gpu", "gpu-repaired", "gpu-partial", "gpu-early")
    by_source = sum((Counter(row["sources"]) for row in made["operations"]), Counter[str]())
    assert sum(by_source[name] for name in timed) == made["completeness"]["gpu_timed"]
    for row in made["operations"]:
        times = row["duration_ns"]
        if times:
            assert times["min"] <= times["median"] <= times["p99"] <= times["max"]
            assert times["min"] <= times["mean"] <= times["max"]
        assert row["algbw_gbs"] is None or row["sources"].keys() & set(timed[:3])


@pytest.mark.parametrize("folder", INTERFACE_FOLDERS)
def test_counters_give_the_same_calls(folder: str, captures: Path, tmp_path: Path) -> None:
    play_job(transcript_files(folder), tmp_path / "profile", mode="profile")
    counted, traced = as_json(tmp_path / "profile"), as_json(capture_of(captures, folder))
    assert counted["made_from"] == "counters"
    assert traced["made_from"] == "operations"
    if folder.startswith(("2.23", "2.26")):  # interfaces 1 and 3 do not tell how many ranks
        assert any("one rank's share" in note for note in counted["notes"])
        assert calls_by_function(counted) == calls_by_function(traced)
    else:
        assert calls_by_key(counted) == calls_by_key(traced)
    assert (counted["ranks"], counted["traffic"]) == (None, None)
    datatypes = {(r["function"], r["size_bytes"]): r["datatype"] for r in traced["operations"]}
    for row in counted["operations"]:
        if (row["function"], row["size_bytes"]) in datatypes:
            assert row["datatype"] == datatypes[row["function"], row["size_bytes"]]
    if folder == TWO_RANKS:
        assert "needs trace" in ncclscope("report", tmp_path / "profile").stdout


def test_straggler_is_named(captures: Path) -> None:
    made = as_json(capture_of(captures, STRAGGLER))
    first, *others = made["ranks"]
    assert (first["rank"], first["times_last"]) == (3, 19)
    assert first["caused_wait_ns"] > 10 * max(row["caused_wait_ns"] for row in others)
    [row] = made["operations"]
    assert row["wait_share"] > 0.7
    assert row["busbw_wire_gbs"] > 4 * row["busbw_gbs"]


def test_forms(captures: Path, tmp_path: Path) -> None:
    capture = capture_of(captures, TWO_RANKS)
    rows = list(csv.DictReader(io.StringIO(ncclscope("report", "--csv", capture).stdout)))
    assert sum(int(row["calls"]) for row in rows) == as_json(capture)["completeness"]["calls"]
    page = tmp_path / "report.html"
    printed = ncclscope("report", "--html", page, capture)
    assert printed.returncode == 0, printed.stderr
    assert str(page) in printed.stdout
    assert page.read_text().endswith("</html>\n")
    text = ncclscope("report", capture).stdout
    assert text.startswith("2 of 2 processes")
    assert "\x1b" not in text


def test_selections(captures: Path) -> None:
    capture = capture_of(captures, TWO_RANKS)
    whole = as_json(capture)
    one = as_json(capture, "--op", "allreduce", "--rank", "1", "--by", "function")
    assert [row["function"] for row in one["operations"]] == ["AllReduce"]
    both = sum(row["calls"] for row in whole["operations"] if row["function"] == "AllReduce")
    assert one["operations"][0]["calls"] == both / 2
    late = as_json(capture, "--since", "-20ms")["total"]["operations"]
    assert as_json(capture, "--last", "20ms")["total"]["operations"] == late
    assert as_json(capture, "--since=-20ms")["total"]["operations"] == late
    early = as_json(capture, "--until", "-20ms")["total"]["operations"]
    assert late
    assert early
    assert late + early == whole["total"]["operations"]
    by_rank = as_json(capture, "--by", "+rank", "--sort", "calls")["operations"]
    assert {row["rank"] for row in by_rank} == {0, 1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--comm", "tp7"], "cannot select communicator tp7"),
        (["--op", "Barrier"], "cannot select operation Barrier"),
        (["--by", "colour"], "cannot group by colour"),
        (["--sort", "beauty"], "cannot sort by beauty"),
        (["--since", "tomorrow"], "cannot understand the time tomorrow"),
        (["--since", "2", "--until", "1"], "nothing lies between"),
        (["--since", "500"], "nothing is on record from --since on in "),
        (["--until", "-500"], "nothing is on record before --until in "),
        (["--since", "2", "--last", "5m"], "cannot choose by --since and --last at once"),
    ],
)
def test_mistakes(arguments: list[str], message: str, captures: Path) -> None:
    printed = ncclscope("report", *arguments, capture_of(captures, TWO_RANKS))
    assert printed.returncode == 2
    assert printed.stderr.startswith(f"ncclscope: {message}")
    assert "Traceback" not in printed.stderr


@pytest.mark.parametrize(("folder", "code"), [("2.28.9-v5-3ranks-hang", 5), (TWO_RANKS, 0)])
def test_incomplete_captures_can_be_refused(folder: str, code: int, captures: Path) -> None:
    capture = capture_of(captures, folder)
    printed = ncclscope("report", "--json", "--require-complete", capture)
    assert printed.returncode == code
    assert json.loads(printed.stdout) == as_json(capture)
    words = f"ncclscope: {capture} is incomplete: 1 operation missing on some ranks\n"
    assert printed.stderr == (words if code else "")


@pytest.mark.parametrize(
    ("folder", "source", "reason"),
    [
        ("2.23.4-v1-2ranks", "proxy", "this NCCL reports no kernels"),
        ("2.26.5-v3-2ranks", "host", "this NCCL gives no GPU stamps"),
    ],
)
def test_old_releases_have_a_reason(folder: str, source: str, reason: str, captures: Path) -> None:
    made = as_json(capture_of(captures, folder))
    assert set(made["total"]["sources"]) == {source}
    assert made["untimed"] == {reason: made["total"]["operations"]}


def test_page_that_cannot_be_written(captures: Path) -> None:
    printed = ncclscope("report", "--html", "/proc/none/x.html", capture_of(captures, TWO_RANKS))
    assert printed.returncode == 1
    assert "cannot write /proc/none/x.html" in printed.stderr


def test_times_of_totals_are_refused(tmp_path: Path) -> None:
    play_job(transcript_files(STRAGGLER), tmp_path / "profile", mode="profile")
    for arguments in (["--since", "1"], ["--last", "1s"], ["--rank", "0"], ["--by", "thread"]):
        printed = ncclscope("report", *arguments, tmp_path / "profile")
        assert printed.returncode == 2
        assert "totals only" in printed.stderr
    by_rank = as_json("--by", "rank", tmp_path / "profile")["operations"]
    assert {row["rank"]: row["calls"] for row in by_rank} == dict.fromkeys(range(4), 20)
