"""Counts of calls: equal in every mode, equal to the trace, exact whatever is dropped."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ncclscope.capture import layout
from ncclscope.capture.call_counts import read_call_counts
from ncclscope.capture.dump_events import events_of
from ncclscope.capture.process import Process
from ncclscope.capture.reader import open_capture, resolve_capture
from ncclscope.nccl.events import INTERFACES
from tests.support.callback_script import Script, every_event
from tests.support.player import (
    INTERFACE_FOLDERS,
    play_job,
    player,
    recording,
    transcript_files,
    write_transcript,
)

Key = tuple[Any, ...]


def counted(process: Process) -> dict[Key, tuple[int, int]]:
    """Calls and sum of counts by key, with names."""
    found: dict[Key, tuple[int, int]] = {}
    for tally in process.call_counts:
        key = tally.key
        numbers = key.bits & layout.TALLY_NUMBERS

        def name(number: int, numbers: int = numbers) -> str | int | None:
            return number if numbers else process.strings.get(number)

        named = (
            key.level, key.communicator, name(key.function), key.count, name(key.datatype),
            name(key.algorithm), name(key.protocol), bool(key.bits & layout.TALLY_CAPTURED),
        )  # fmt: skip
        calls, total = found.get(named, (0, 0))
        found[named] = (calls + tally.calls, total + tally.count_sum)
    return found


def traced(process: Process) -> dict[Key, tuple[int, int]]:
    """The same from the events on record."""
    found: Counter[Key] = Counter()
    for event in events_of(process):
        fields, name = event["fields"], event["event"]
        comm = int(event["comm"].partition(".")[2]) if event["comm"] else layout.NO_COMM
        what = (comm, fields.get("func"), fields.get("count"), fields.get("datatype"))
        if name in ("CollApi", "P2pApi"):
            found[(layout.LEVEL_CALL, *what, None, None, fields["graphCaptured"])] += 1
        elif name == "Coll":
            found[(layout.LEVEL_WORK, *what, fields["algo"], fields["proto"], False)] += 1
        elif name == "P2p":
            none = 0 if process.communicators[0].version == 1 else None
            found[(layout.LEVEL_WORK, *what, none, none, False)] += 1
        elif name == "CeColl":
            found[(layout.LEVEL_COPY_ENGINE, *what, None, None, False)] += 1
    return {key: (calls, calls * key[3]) for key, calls in found.items()}


def by_rank(capture: Path) -> dict[int | None, Process]:
    return {
        process.rank: process for process in open_capture(resolve_capture(str(capture))).processes
    }


@pytest.mark.parametrize("folder", INTERFACE_FOLDERS)
def test_profile_counts_equal_the_trace(folder: str, tmp_path: Path) -> None:
    files = transcript_files(folder)
    for mode in ("profile", "trace", "full"):
        play_job(files, tmp_path / mode, mode=mode)
    traces, profiles = by_rank(tmp_path / "trace"), by_rank(tmp_path / "profile")
    for rank, process in traces.items():
        expected = traced(process)
        assert sum(calls for calls, _ in expected.values()) >= 10
        assert counted(process) == expected
        assert counted(profiles[rank]) == expected
        assert counted(by_rank(tmp_path / "full")[rank]) == expected
        folder_of = tmp_path / "profile" / profiles[rank].folder
        assert not list(folder_of.glob("log.*")), "profile mode writes no events"


@pytest.mark.parametrize("version", INTERFACES)
@pytest.mark.parametrize("end", ["finalize", "kill"])
def test_every_interface(version: int, end: str, tmp_path: Path) -> None:
    path = write_transcript(tmp_path / "s.jsonl", every_event(version).lines)
    for mode in ("profile", "full"):
        player("play", path, "--end", end, env=recording(tmp_path / mode, mode))
    (profile,), (full,) = (by_rank(tmp_path / mode).values() for mode in ("profile", "full"))
    assert counted(profile) == counted(full) == traced(full)


def test_every_operation_is_timed_or_has_a_reason(tmp_path: Path) -> None:
    for folder in INTERFACE_FOLDERS:
        if "hang" in folder:
            continue
        play_job(transcript_files(folder), tmp_path / folder, "--realtime", mode="profile")
        timed = 0
        for process in by_rank(tmp_path / folder).values():
            for tally in process.call_counts:
                if tally.key.level != layout.LEVEL_WORK:
                    continue
                gpu = int(tally.times["gpu_count"])
                assert gpu + int(tally.times["untimed"].sum()) == tally.calls, (folder, tally)
                assert int(tally.times["gpu_histogram"].sum()) == gpu
                if gpu:
                    low, high = int(tally.times["gpu_min_ns"]), int(tally.times["gpu_max_ns"])
                    assert low * gpu <= int(tally.times["gpu_sum_ns"]) <= high * gpu
                timed += gpu
        version = int(folder.split("-v")[1][0])
        assert (timed > 0) == (version >= 4), folder


def test_counts_are_exact_when_events_are_dropped(tmp_path: Path) -> None:
    env = recording(tmp_path / "c", NCCLSCOPE_ARENA="1M", NCCLSCOPE_EVENTS="0xffff")
    played = player("load", "--version", 7, "--threads", 4, "--collectives", 3000, env=env)
    assert played.returncode == 0, played.stderr
    process = open_capture(tmp_path / "c").processes[0]
    assert process.dropped() > 0
    calls = {key[0]: count for key, (count, _) in counted(process).items()}
    assert calls == {layout.LEVEL_CALL: 12000, layout.LEVEL_WORK: 12000}


def sizes_script(sizes: int, comms: int = 1) -> Script:
    script = Script(6)
    contexts = [script.init() for _ in range(comms)]
    for size in range(sizes):
        call = {"func": "AllReduce", "dtype": "ncclInt8", "root": 0, "stream": "0", "graph": 0}
        handle = script.start("CollApi", ctx=contexts[size % comms], count=size + 1, **call)
        script.stop(handle)
    return script


def test_many_sizes_fold_into_powers_of_two(tmp_path: Path) -> None:
    sizes = 5000
    path = write_transcript(tmp_path / "s.jsonl", sizes_script(sizes).lines)
    player("play", path, env=recording(tmp_path / "c", "profile"))
    process = open_capture(tmp_path / "c").processes[0]
    tallies = [tally for tally in process.call_counts if tally.key.level == layout.LEVEL_CALL]
    exact = [tally for tally in tallies if not tally.key.bits & layout.TALLY_FOLDED]
    folded = [tally for tally in tallies if tally.key.bits & layout.TALLY_FOLDED]
    assert 700 <= len(exact) <= 768
    assert 0 < len(folded) <= 14
    assert sum(tally.calls for tally in tallies) == sizes
    assert sum(tally.count_sum for tally in tallies) == sizes * (sizes + 1) // 2
    assert process.counters["tally_folded", 0] == sum(tally.calls for tally in folded)


def test_more_keys_than_any_table_holds(tmp_path: Path) -> None:
    sizes = 20000
    path = write_transcript(tmp_path / "s.jsonl", sizes_script(sizes, comms=2000).lines)
    played = player("play", path, env=recording(tmp_path / "c", "profile"))
    assert played.returncode == 0
    process = open_capture(tmp_path / "c").processes[0]
    tallies = [tally for tally in process.call_counts if tally.key.level == layout.LEVEL_CALL]
    assert sum(tally.calls for tally in tallies) == sizes
    assert len(tallies) < 4200
    others = sum(t.calls for t in tallies if t.key.communicator == layout.NO_COMM)
    assert others == process.counters["tally_other", 0] > 0


def works_script(sizes: int, threads: int) -> Script:
    """Collectives of many sizes, each thread with its own."""
    script = Script(6)
    script.init()
    work = {
        "func": "AllReduce", "dtype": "ncclInt8", "root": 0, "seq": 0, "send": "0", "recv": "0",
        "nch": 1, "nwarps": 1, "algo": "RING", "proto": "LL", "group": 0,
    }  # fmt: skip
    for number in range(sizes):
        thread = number % threads
        script.stop(script.start("Coll", thread=thread, count=number + 1, **work), thread=thread)
    script.finalize()  # so that the tally file is all there is
    return script


def recorded_works(script: Script, directory: Path) -> tuple[Process, list[Any]]:
    path = write_transcript(directory / "s.jsonl", script.lines)
    played = player("play", path, env=recording(directory / "c", "profile"))
    assert played.returncode == 0, played.stderr
    process = open_capture(directory / "c").processes[0]
    return process, [t for t in process.call_counts if t.key.level == layout.LEVEL_WORK]


def test_times_are_folded_as_calls_are(tmp_path: Path) -> None:
    process, works = recorded_works(works_script(3000, threads=1), tmp_path)
    assert sum(tally.calls for tally in works) == 3000
    assert process.counters["tally_folded", 0] > 2000
    for tally in works:
        known = int(tally.times["gpu_count"]) + int(tally.times["untimed"].sum())
        assert known == tally.calls > 0, tally.key
    records = read_call_counts(tmp_path / "c" / process.folder / "tally")
    assert len(records) < 900, "no room is taken by keys that have no calls"


def test_what_the_tally_file_has_no_room_for_is_counted(tmp_path: Path) -> None:
    """Eight threads count 650 sizes each, exactly; all of them are more than the file holds."""
    sizes = 8 * 650
    process, works = recorded_works(works_script(sizes, threads=8), tmp_path)
    assert sum(tally.calls for tally in works) == sizes
    assert sum(tally.count_sum for tally in works) == sizes * (sizes + 1) // 2
    folded = sum(tally.calls for tally in works if tally.key.bits & layout.TALLY_FOLDED)
    assert 0 < folded == process.counters["tally_folded", 0]
    others = sum(tally.calls for tally in works if tally.key.communicator == layout.NO_COMM)
    assert others == process.counters.get(("tally_other", 0), 0)
