"""Reports of captures with hostile bytes: less than everything, or one sentence, never a traceback
and never numbers that cannot be.
"""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ncclscope
from ncclscope.capture import layout
from ncclscope.capture.dtypes import ANY_SLOT
from ncclscope.capture.header import parse_header
from ncclscope.cli import main
from ncclscope.errors import NcclscopeError
from ncclscope.model.detail_schema import DETAILS
from ncclscope.simulation.scenario import Call, Range, Scenario
from tests.support.corruption import Damager
from tests.support.exhaustive import sample
from tests.support.player import TRANSCRIPTS, play_job, transcript_files
from tests.support.writer import SyntheticSpec, from_transcript, synthetic, write_scenario

# One process of 2.23 reports no kernels; the simulation has a clock for each rank.
CAPTURES = (
    "2.23.4-v1-2ranks",
    "2.28.9-v5-3ranks-hang",
    "2.31.2-v7-2ranks",
    "three nodes",
    "ranges",
)
VARIANTS = 28


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Whole captures, to be copied."""
    below = tmp_path_factory.mktemp("whole")
    for name in CAPTURES[:3]:
        from_transcript(TRANSCRIPTS / name, below / name)
    synthetic(below / CAPTURES[3], SyntheticSpec(processes=3, operations=50, ranks_per_node=1))
    ranges = (Range("step {step}", 0, 1), Range("Optimizer.step#Adam.step", 2, ms=1, source=2))
    calls = (Call("world", "AllReduce", 1024),) * 2
    write_scenario(below / CAPTURES[4], Scenario(steps=20, calls=calls, ranges=ranges))
    return below


def damaged(whole: Path, copy: Path, seed: int) -> list[str]:
    """Makes a damaged copy of a capture and says what was done to it."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(whole, copy)
    draw, damager = random.Random(seed), Damager(seed)
    files = sorted(file for file in copy.glob("*/*") if file.name.startswith(("meta", "log")))
    return [damager.damage(draw.choice(files)) for _ in range(draw.choice((1, 2, 4, 8)))]


def check(made: dict[str, Any]) -> None:
    """Numbers that hold whatever the capture says."""
    rows = made["operations"]
    for name in ("calls", "operations", "in_flight"):
        assert sum(row[name] for row in rows) == made["completeness"][name]
    for row in [*rows, *made["communicators"], *made["scopes"], made["total"]]:
        times = row["duration_ns"] or {"min": 0, "mean": 0, "max": 0}
        assert 0 <= times["min"] <= times["mean"] <= times["max"]
        assert row["total_bytes"] >= 0
        for share in ("wait_share", "relative_wait_share"):
            assert row[share] is None or 0 <= row[share] <= 1


@pytest.mark.parametrize("name", CAPTURES)
def test_reports_of_damaged_captures(
    name: str, captures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    for seed in sample(range(VARIANTS), 3):
        said = damaged(captures / name, copy, seed)
        try:
            if main(["report", "--json", str(copy)]) == 0:
                check(json.loads(capsys.readouterr().out))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {said}") from error


def test_pages_and_tables_of_damaged_captures(
    captures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    for seed in range(1000, 1006):
        said = damaged(captures / CAPTURES[2], copy, seed)
        try:
            main(["report", str(copy)])
            main(["report", "--html", str(tmp_path / "page.html"), str(copy)])
            capture = ncclscope.open(copy)
            for table in DETAILS:
                len(capture.table(table))
        except NcclscopeError:
            pass
        except Exception as error:
            raise AssertionError(f"seed {seed}: {said}") from error


def test_a_dump_of_times_beyond_64_bits(
    captures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """States of an event are kept as distances from its start, which is damaged."""
    copy = tmp_path / "copy"
    shutil.copytree(captures / CAPTURES[2], copy)
    for file in copy.glob("*/log.*"):
        data = bytearray(file.read_bytes())
        start = parse_header(bytes(data), file).header_bytes
        slots = np.frombuffer(data, ANY_SLOT, (len(data) - start) // layout.SLOT_BYTES, start)
        slots["t0"][slots["kind"] == layout.KINDS["ProxyStep"]] = (1 << 64) - 1
        file.write_bytes(data)
    assert main(["dump", str(copy), "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 10


def test_counters_of_damaged_captures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Captures of mode profile: any byte of the file of counters."""
    whole, copy = tmp_path / "whole", tmp_path / "copy"
    play_job(transcript_files("2.28.9-v5-3ranks-hang"), whole, mode="profile")
    draw = random.Random(7)
    for seed in range(20):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(whole, copy)
        file = draw.choice(sorted(copy.glob("*/tally")))
        data = bytearray(file.read_bytes())
        for _ in range(draw.choice((1, 10, 100))):
            data[draw.randrange(len(data))] = draw.choice((0, 0x7F, 0x80, 0xFF))
        file.write_bytes(data)
        try:
            main(["report", "--json", str(copy)])
            main(["report", str(copy)])
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


READING_VERBS = ("report", "diagnose", "status", "whatif", "compare", "dump", "export", "timeline")


@pytest.mark.parametrize("verb", READING_VERBS)
def test_a_capture_of_which_no_process_can_be_read_is_refused(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture, page = tmp_path / "capture", tmp_path / "page.html"
    synthetic(capture, SyntheticSpec(processes=2, operations=5))
    for file in capture.glob("*/*"):
        file.write_bytes(b"x" * 100)
    more = {
        "compare": [str(capture)],
        "export": ["-o", str(tmp_path / "x.csv")],
        "timeline": ["--html", str(page)],
    }
    assert main([verb, str(capture), *more.get(verb, [])]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"cannot read any process of {capture}: cannot read" in printed.err
    assert "100 bytes are too few" in printed.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["capture"]
    assert not (capture / "model").exists()


def test_serve_names_a_capture_of_which_no_process_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = tmp_path / "capture"
    synthetic(capture, SyntheticSpec(processes=2, operations=5))
    for file in capture.glob("*/*"):
        file.write_bytes(b"x" * 100)
    assert main(["serve", str(capture), "--all-hosts", "--once"]) == 0
    printed = capsys.readouterr()
    assert f"{capture} cannot be read and is left out" in printed.err
    assert "ncclscope_unreadable_captures 1" in printed.out


def without_communicators(whole: Path, copy: Path) -> Path:
    """A copy whose metadata is cut off: operations are there, their communicators are not."""
    shutil.copytree(whole, copy)
    for meta in copy.glob("*/meta"):
        data = meta.read_bytes()
        meta.write_bytes(data[: parse_header(data, meta).header_bytes])
    assert ncclscope.open(copy).model.communicator_names == []
    return copy


def test_a_timeline_without_communicators(captures: Path, tmp_path: Path) -> None:
    copy, page = without_communicators(captures / CAPTURES[1], tmp_path / "copy"), tmp_path / "p"
    assert main(["timeline", str(copy), "--html", str(page)]) == 0
    assert page.exists()


@pytest.mark.parametrize("form", ["inspector", "jsonl", "csv", "perfetto", "chrome"])
def test_exports_without_communicators(form: str, captures: Path, tmp_path: Path) -> None:
    copy = without_communicators(captures / CAPTURES[1], tmp_path / "copy")
    assert main(["export", str(copy), "--to", form, "-o", str(tmp_path / f"x.{form}")]) == 0


def test_following_without_communicators(captures: Path, tmp_path: Path) -> None:
    copy, out = without_communicators(captures / CAPTURES[1], tmp_path / "copy"), tmp_path / "x"
    assert main(["export", str(copy), "--to", "jsonl", "--follow", "-o", str(out)]) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert lines
    assert {line["communicator_id"] for line in lines} <= {None, -1}
