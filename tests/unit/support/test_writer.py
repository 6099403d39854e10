"""Captures written without a plugin are what the plugin writes, with times of their own choosing."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ncclscope.capture import layout
from ncclscope.capture.dump_events import events_of
from ncclscope.capture.process import Process
from ncclscope.capture.segment import expand
from tests.support.captures import undamaged_processes
from tests.support.player import (
    INTERFACE_FOLDERS,
    TRANSCRIPTS,
    play_job,
    read_transcript,
    transcript_files,
)
from tests.support.transcript_check import check_process
from tests.support.writer import from_transcript

Line = dict[str, Any]


def times_by_thread(lines: list[Line]) -> dict[int, list[list[int]]]:
    """Per thread, each event's times in the order of the callbacks."""
    times: dict[int, list[int]] = {}
    threads: dict[int, list[list[int]]] = defaultdict(list)
    for line in lines:
        if line["cb"] == "start":
            times[line["h"]] = [line["t"]]
            threads[line["tid"]].append(times[line["h"]])
        elif line["cb"] in ("state", "stop"):
            times[line["h"]].append(line["t"])
    return threads


def recorded_times(events: list[Line]) -> dict[int, list[list[int]]]:
    """The same from a capture."""
    threads: dict[int, list[list[int]]] = defaultdict(list)
    for event in sorted(events, key=lambda event: int(event["id"].partition(".")[2])):
        stop = [] if event["stop_ns"] is None else [event["stop_ns"]]
        states = [state["t_ns"] for state in event["states"]]
        threads[event["thread"]].append([event["start_ns"], *states, *stop])
    return threads


@pytest.mark.parametrize("folder", INTERFACE_FOLDERS)
def test_a_transcript_comes_back_at_its_own_times(folder: str, tmp_path: Path) -> None:
    from_transcript(TRANSCRIPTS / folder, tmp_path / "capture")
    files = transcript_files(folder)
    processes = undamaged_processes(tmp_path / "capture")
    assert len(processes) == len(files)
    for process, file in zip(processes, files, strict=True):
        lines = read_transcript(file)
        events = list(events_of(process))
        check_process(lines, events, True, process.header.pid)
        inits = [line for line in lines if line["cb"] == "init"]
        ends = [line for line in lines if line["cb"] == "finalize"]
        assert process.ended == (len(ends) == len(inits))
        comms = [event for event in events if event["event"] == "Comm"]
        assert [comm["start_ns"] for comm in comms] == [line["t"] for line in inits]
        plain = [event for event in events if event["event"] != "Comm"]
        assert recorded_times(plain) == times_by_thread(lines)


def heads(process: Process) -> dict[int, tuple[int, ...]]:
    """Kind, states, chan and flags of each slot, by key."""
    blocks = process.slots.blocks
    slots = process.slots.take(expand(blocks.row, blocks.count))
    names = ("kind", "states", "chan", "flags", "check")
    rows = zip(*(slots[name].tolist() for name in names), strict=True)
    return dict(zip(expand(blocks.key, blocks.count).tolist(), rows, strict=True))


@pytest.mark.parametrize("folder", INTERFACE_FOLDERS)
def test_the_plugin_writes_the_same_slots(folder: str, tmp_path: Path) -> None:
    from_transcript(TRANSCRIPTS / folder, tmp_path / "written")
    play_job(transcript_files(folder), tmp_path / "played")
    both = undamaged_processes(tmp_path / "written"), undamaged_processes(tmp_path / "played")
    for written, played in zip(*both, strict=True):
        assert heads(written) == heads(played)
        assert written.strings == played.strings
        assert [c.mask for c in written.communicators] == [c.mask for c in played.communicators]


def test_host_clocks_can_be_shifted(tmp_path: Path) -> None:
    folder = TRANSCRIPTS / "2.28.9-v5-2ranks"
    from_transcript(folder, tmp_path / "plain")
    from_transcript(
        folder,
        tmp_path / "shifted",
        offsets_ns={1: -7_000_000},
        drift_ppm={1: 50.0},
        boot_ids={1: "another"},
    )
    plain, shifted = (
        undamaged_processes(tmp_path / "plain"),
        undamaged_processes(tmp_path / "shifted"),
    )
    assert [process.host for process in plain] == ["node0", "node0"]
    assert [process.host for process in shifted] == ["node0", "node1"]
    assert list(events_of(plain[0])) == list(events_of(shifted[0]))
    before, after = list(events_of(plain[1])), list(events_of(shifted[1]))
    start_ns = np.array([event["start_ns"] for event in before])
    moved_ns = np.array([event["start_ns"] for event in after]) - start_ns
    origin_ns = min(event["start_ns"] for event in [*events_of(plain[0]), *before])
    assert np.abs(moved_ns + 7_000_000 - (start_ns - origin_ns) * 50e-6).max() <= 0.5
    assert [event["fields"] for event in before] == [event["fields"] for event in after]


def test_trace_mode_leaves_steps_out(tmp_path: Path) -> None:
    from_transcript(TRANSCRIPTS / "2.28.9-v5-2ranks", tmp_path / "capture", mode="trace")
    for process in undamaged_processes(tmp_path / "capture"):
        names = {event["event"] for event in events_of(process)}
        assert names.isdisjoint({"ProxyStep", "ProxyCtrl"})
        assert {"ProxyOp", "KernelCh", "Coll"} <= names
        assert process.identity["mode"] == "trace"
        assert process.communicators[0].mask == 0xFFF & ~0xB0
        assert layout.KINDS["ProxyStep"] not in {head[0] for head in heads(process).values()}
