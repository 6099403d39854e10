"""Callbacks that NCCL makes one right after the other share a reading of the clock; all others have
one of their own, and no thread's times ever go back.
"""

from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from ncclscope.capture.reader import open_capture
from ncclscope.export.callbacks import callbacks_of
from tests.support.callback_script import Script
from tests.support.player import FOLDERS, dump, play_job, read_transcript, transcript_files
from tests.support.transcript_check import Line, by_thread, recorded_threads

MOST_WORKS = 8  # that share a reading
COLL = {"func": "AllReduce", "count": 16, "dtype": "ncclFloat32", "root": 0}
P2P = {"func": "Send", "count": 16, "dtype": "ncclFloat32"}


def two_calls(depth: int) -> Script:
    """The same call twice, as NCCL 2.30 reports it: the second one is like one before."""
    script = Script(6)
    script.init()
    for seq in range(2):
        group_api = script.start("GroupApi", graph=0, depth=depth)
        script.state(group_api, 23)
        call = script.start("CollApi", group_api, stream="7f00", graph=0, **COLL)
        script.stop(call)
        script.state(group_api, 24)
        launch = script.start("KernelLaunch", group_api, stream="7f00")
        script.stop(launch)
        group = script.start("Group")
        work = script.start("Coll", call, seq=seq, send="1000", recv="2000", algo="RING",
                            proto="LL", nch=1, nwarps=8, group=group, **COLL)  # fmt: skip
        script.stop(work)
        script.stop(group)
        script.stop(group_api)
        kernel = script.start("KernelCh", work, thread=1, ch=0, ptimer=55)
        script.state(kernel, 22, 66, thread=1)
        script.stop(kernel, thread=1)
    script.finalize()
    return script


def last_of_each(events: list[Line]) -> dict[str, Line]:
    """The second call's events by name, with the times of their states by number."""
    found = {event["event"]: event for event in events}
    for event in found.values():
        event["times"] = {state["state"]: state["t_ns"] for state in event.get("states", [])}
    return found


def test_what_follows_at_once_shares_a_reading(tmp_path: Path) -> None:
    e = last_of_each(two_calls(depth=1).record(tmp_path)[0])
    begun = e["GroupApi"]["start_ns"]
    assert begun == e["GroupApi"]["times"][23] == e["CollApi"]["start_ns"]
    assert begun < e["CollApi"]["stop_ns"] == e["GroupApi"]["times"][24]
    assert e["CollApi"]["stop_ns"] < e["KernelLaunch"]["start_ns"] < e["KernelLaunch"]["stop_ns"]
    launched = e["KernelLaunch"]["stop_ns"]
    assert launched == e["Group"]["start_ns"] == e["Coll"]["start_ns"]
    assert launched < e["Coll"]["stop_ns"] == e["Group"]["stop_ns"] < e["GroupApi"]["stop_ns"]
    assert e["KernelCh"]["start_ns"] < e["KernelCh"]["times"][22] == e["KernelCh"]["stop_ns"]


def test_a_group_that_the_user_ends_has_its_own_time(tmp_path: Path) -> None:
    """There may be anything between its last call and its end."""
    e = last_of_each(two_calls(depth=2).record(tmp_path)[0])
    assert e["CollApi"]["stop_ns"] < e["GroupApi"]["times"][24]


def test_with_anything_in_between_nothing_is_shared(tmp_path: Path) -> None:
    """An event of the same thread between each two that belong together."""
    script = Script(6)
    script.init()
    for _ in range(2):
        group_api = script.start("GroupApi", graph=0, depth=1)
        script.state(group_api, 23)
        script.stop(script.start("ProxyCtrl"))
        call = script.start("P2pApi", group_api, stream="7f00", graph=0, **P2P)
        script.stop(call)
        launch = script.start("KernelLaunch", group_api, stream="7f00")
        script.stop(launch)
        script.stop(script.start("ProxyCtrl"))
        group = script.start("Group")
        script.stop(script.start("ProxyCtrl"))
        work = script.start("P2p", call, buff="1000", peer=1, nch=1, group=group, **P2P)
        script.stop(work)
        script.stop(script.start("ProxyCtrl"))
        script.stop(group)
        script.stop(group_api)
    script.finalize()
    e = last_of_each(script.record(tmp_path)[0])
    times = [e["GroupApi"]["start_ns"], e["P2pApi"]["start_ns"], e["P2pApi"]["stop_ns"]]
    times += [e["KernelLaunch"]["start_ns"], e["KernelLaunch"]["stop_ns"], e["Group"]["start_ns"]]
    times += [e["P2p"]["start_ns"], e["P2p"]["stop_ns"], e["Group"]["stop_ns"]]
    assert all(before < after for before, after in pairwise(times)), times


def test_many_works_of_a_group_have_several_readings(tmp_path: Path) -> None:
    script = Script(6)
    script.init()
    for _ in range(2):
        group = script.start("Group")
        works = [
            script.start("P2p", 0, buff="1000", peer=1, nch=1, group=group, **P2P)
            for _ in range(100)
        ]
        for work in works:
            script.stop(work)
        script.stop(group)
    script.finalize()
    events, _ = script.record(tmp_path)
    (process,) = open_capture(tmp_path / "capture").processes
    calls = [(line["cb"], line["h"]) for line in callbacks_of(process) if "h" in line]
    made = [(line["cb"], line["h"]) for line in script.lines if "h" in line]
    assert calls == made, "in the order in which they were made, whatever their times"
    group = [event for event in events if event["event"] == "Group"][-1]
    works = [event for event in events if event["event"] == "P2p"][-100:]
    assert group["stop_ns"] == works[-1]["stop_ns"]
    for name in ("start_ns", "stop_ns"):
        times = [work[name] for work in works]
        assert times == sorted(times)
        assert max(times.count(time) for time in times) <= MOST_WORKS + 1  # its group's too


@pytest.mark.parametrize("folder", [f for f in FOLDERS if int(f.split("-")[1][1:]) >= 4])
def test_times_never_go_back(folder: str, tmp_path: Path) -> None:
    """In the order of the real callbacks of each thread."""
    file = transcript_files(folder)[0]
    assert play_job([file], tmp_path / "capture") == [0]
    lines = [line for line in read_transcript(file) if line["cb"] in ("start", "state", "stop")]
    events = [event for event in dump(tmp_path / "capture") if event["event"] != "Comm"]
    starts = by_thread([line for line in lines if line["cb"] == "start"], "tid")
    pairs = [
        (line["h"], event)
        for expected, found in zip(starts, recorded_threads(events), strict=True)
        for line, event in zip(expected, found, strict=True)
    ]
    by_handle = dict(pairs)
    times: dict[int, list[int]] = defaultdict(list)
    for line in lines:
        event = by_handle[line["h"]]
        if line["cb"] == "start":
            times[line["tid"]].append(event["start_ns"])
        elif line["cb"] == "stop":
            times[line["tid"]].append(event["stop_ns"])
        elif event["event"] == "GroupApi":
            (state,) = (s for s in event["states"] if s["state"] == line["s"])
            times[line["tid"]].append(state["t_ns"])
    for thread in times.values():
        assert thread == sorted(thread)
    assert sum(map(len, times.values())) > 100


def test_where_threads_have_no_room_left_next_to_their_own(tmp_path: Path) -> None:
    """A process whose libraries have used it up: the long way, with a reading a callback."""
    tunables = "glibc.rtld.optional_static_tls=0"
    events, counters = two_calls(depth=1).record(tmp_path, GLIBC_TUNABLES=tunables)
    e = last_of_each(events)
    assert e["GroupApi"]["start_ns"] < e["CollApi"]["start_ns"]  # the short way would share it
    assert len(events) == 1 + 2 * 6
    assert not counters
