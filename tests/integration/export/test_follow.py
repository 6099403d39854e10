"""JSON lines while a job runs: every operation once, rotated, to the job's end."""

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import ncclscope as package
from ncclscope.analysis.selection import Selection
from ncclscope.errors import UsageError
from ncclscope.export import follow
from ncclscope.export.follow import RotatingFile, follow_jsonl
from ncclscope.model.model import Model
from ncclscope.model.sql_views import shown_columns
from ncclscope.notebook.views import name_in_python
from tests.support.player import TRANSCRIPTS, ncclscope, recording, start_player
from tests.support.waiting import eventually
from tests.support.writer import SyntheticSpec, from_transcript, synthetic

GONE = {"operation", "process", "communicator", "node", "instance", "part_of"}


def lines_of(path: Path) -> list[dict[str, Any]]:
    """All lines, oldest file first."""
    files = sorted(path.parent.glob(f"{path.name}.*"), key=lambda file: -int(file.suffix[1:]))
    return [
        json.loads(line)
        for file in [*files, *([path] if path.exists() else [])]
        for line in file.read_text().splitlines()
    ]


def everything(_: Model) -> Selection:
    return Selection()


def test_lines_come_while_the_job_runs(tmp_path: Path) -> None:
    capture, out = tmp_path / "c", tmp_path / "ops.jsonl"
    job = start_player(
        "load", "--version", 5, "--collectives", 400, "--channels", 2, "--steps", 0, "--rate", 500,
        env=recording(capture, "trace", RANK="0", WORLD_SIZE="1"),
    )  # fmt: skip
    try:
        eventually(lambda: list(capture.glob("*/log.*")))
        command = [
            sys.executable,
            "-m",
            "ncclscope",
            "export",
            str(capture),
            "--to",
            "jsonl",
            "--follow",
        ]
        with subprocess.Popen(
            [*command, "-o", str(out)], stderr=subprocess.PIPE, text=True
        ) as follower:
            early = 0
            while job.poll() is None:
                time.sleep(0.2)
                if out.exists() and job.poll() is None:
                    early = max(early, out.read_bytes().count(b"\n"))
            said = follower.communicate(timeout=90)[1]
            assert follower.returncode == 0, said
    finally:
        job.kill()
        job.communicate()
    lines = lines_of(out)
    assert 0 < early < len(lines) == 400
    assert "400 operations written" in said
    assert max(Counter((line["folder"], line["event"]) for line in lines).values()) == 1
    expected = package.open(capture).operations
    schema = [column.name for column in shown_columns("operations")]
    columns = [name for name in schema if name not in GONE]
    assert set(lines[0]) == {"folder", "communicator_id", *columns}
    rows = {
        row[columns.index("event")]: row
        for row in expected.project(
            ", ".join(f'"{name_in_python(name)}"' for name in columns)
        ).fetchall()
    }
    for line in lines:
        assert (line["function"], line["count"]) == tuple(
            rows[line["event"]][columns.index(name)] for name in ("function", "count")
        )


def test_an_operation_is_written_once_settled(tmp_path: Path) -> None:
    """Not at the reading at which it is first done; what is not done, at the last one."""
    from_transcript(TRANSCRIPTS / "2.28.9-v5-3ranks-hang", tmp_path / "c")
    model = package.open(tmp_path / "c").model
    out = RotatingFile(tmp_path / "ops.jsonl", 1 << 30, 1)
    follower = follow._Follower(everything, out)
    follower.write_new(model, is_last=False)
    assert follower.count == 0
    follower.write_new(model, is_last=False)
    done = follower.count
    follower.write_new(model, is_last=False)
    assert follower.count == done == 15
    follower.write_new(model, is_last=True)
    out.close()
    states = [line["state"] for line in lines_of(out.path)]
    assert len(states) == follower.count == 17
    assert states.count("in flight") == 2


def test_files_are_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "ROWS", 10)
    synthetic(tmp_path / "c", SyntheticSpec(processes=2, operations=100))
    for keep, kept in ((99, 200), (2, 20), (0, 0)):  # every piece of ten fills a file
        out = tmp_path / f"{keep}" / "ops.jsonl"
        out.parent.mkdir()
        rotated = RotatingFile(out, 5_000, keep)
        assert follow_jsonl(tmp_path / "c", everything, rotated, threading.Event()).count == 200
        starts = [(line["global_rank"], line["call_order"]) for line in lines_of(out)]
        assert starts == [(rank, order) for rank in (0, 1) for order in range(100)][200 - kept :]
        assert len(list(out.parent.iterdir())) == kept // 10


def test_what_cannot_be_followed(tmp_path: Path) -> None:
    synthetic(tmp_path / "c", SyntheticSpec(processes=2, operations=3))
    (tmp_path / "there.jsonl").write_text("mine")
    for name, why in (("there.jsonl", "it exists"), ("x.jsonl.gz", "cannot be compressed")):
        with pytest.raises(UsageError, match=why):
            follow_jsonl(
                tmp_path / "c", everything, RotatingFile(tmp_path / name, 1, 1), threading.Event()
            )
    assert (tmp_path / "there.jsonl").read_text() == "mine"
    done = ncclscope("export", tmp_path / "c", "--to", "csv", "--follow", "-o", tmp_path / "x.csv")
    assert "cannot use --follow with csv. It is for jsonl" in done.stderr
    done = ncclscope(
        "export", tmp_path / "c", "--to", "jsonl", "--follow", "-o", "-", "--rank", "1"
    )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["global_rank"] for line in done.stdout.splitlines()] == [1, 1, 1]
