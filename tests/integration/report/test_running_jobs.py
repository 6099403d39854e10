"""Reports of jobs that still run, and of flight recorders: nothing counts as missing that is only
not there yet, or that was given up on purpose and counted.
"""

import json
from pathlib import Path
from typing import Any

from ncclscope.simulation.scenario import Call, Communicators, Scenario
from tests.support.player import ncclscope
from tests.support.simulated_jobs import running
from tests.support.waiting import eventually

JOB = Scenario(
    ranks=4,
    steps=100_000,
    compute_ms=1,
    communicators=(Communicators("tp", size=2), Communicators("dp", size=2, stride=2)),
    calls=(Call("tp", "AllGather", 64 << 10), Call("dp", "AllReduce", 64 << 10)),
)


def completeness(capture: Path) -> dict[str, Any]:
    counts: dict[str, Any] = json.loads(ncclscope("report", capture, "--json").stdout)[
        "completeness"
    ]
    return counts


def test_what_is_read_a_moment_later_is_not_missing(tmp_path: Path) -> None:
    with running(JOB, tmp_path / "c"):
        eventually(
            lambda: (tmp_path / "c").is_dir() and completeness(tmp_path / "c")["calls"] > 2000
        )
        for _ in range(4):
            counts = completeness(tmp_path / "c")
            # A rank that the machine holds up has not called yet, and its partner waits: in at most two pairs.
            assert counts["missing_operations"] <= 2
            now = {"the record ends before it began on the GPU", "never launched"}
            assert set(counts["untimed"]) <= now


def test_a_flight_recorder_names_all_calls_and_what_it_gave_up(tmp_path: Path) -> None:
    capture = tmp_path / "c"
    with running(JOB, capture, "--ring", "256K"):
        eventually(lambda: capture.is_dir() and completeness(capture)["calls_outside"] > 1000)
        counts = completeness(capture)
        assert counts["missing_operations"] == 0
        assert "NCCL reported no kernel of it" not in counts["untimed"]
    counts = completeness(capture)
    (reason,) = counts["lost"]
    assert reason == "older than the flight recorder reaches back"
    lines = [note for note in counts["notes"] if reason in note]
    assert len(lines) == 1
    assert "in 4 processes (" in lines[0]
    calls = counts["calls"] + counts["calls_outside"]
    shown = ncclscope("report", capture).stdout
    assert f"{counts['calls']:,} of {calls:,} calls (" in shown.replace("\n", " ")
    found = json.loads(ncclscope("diagnose", capture, "--json").stdout)["findings"]
    lost = next(one for one in found if one["kind"] == "lost")
    assert "--ring" in lost["advice"]
    assert "DISK_LIMIT" not in lost["advice"]
