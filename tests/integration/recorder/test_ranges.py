"""Ranges that programs make with NVTX, as the recorder writes them: real nvtx, simulated NCCL."""

import json
import os
import signal
import struct
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest

from ncclscope.capture import layout
from ncclscope.capture.columns import START_NS
from ncclscope.capture.live_page import read_live_page
from ncclscope.capture.process import Process, open_process
from ncclscope.capture.range_payloads import range_payloads
from ncclscope.capture.reader import open_capture
from ncclscope.model.detail_tables import own_details
from ncclscope.model.process.events import events_of
from ncclscope.native import player_path, plugin_path
from tests.support.player import ncclscope
from tests.support.range_job import (
    RecordedRange,
    only_process,
    ranges_of,
    record,
    start_program,
)
from tests.support.waiting import eventually

_IMPORT = "import nvtx\n"


def _by_text(process: Process) -> dict[str, RecordedRange]:
    return {one.text: one for one in ranges_of(process)}


def _player(capture: Path, *arguments: object, **variables: str) -> str:
    environment = os.environ | {
        "NCCLSCOPE_DIR": str(capture), "NCCLSCOPE_MODE": "trace", **variables,
    }  # fmt: skip
    command = [player_path(), "ranges", "--plugin", plugin_path(), *arguments]
    ran = subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_domains_categories_payloads_and_marks_are_recorded(tmp_path: Path) -> None:
    body = """
job.begin()
nvtx.push_range("outer", domain="training", category="phase", payload=7)
with nvtx.annotate("inner", payload=0.5): job.send()
nvtx.mark("moment", domain="training")
nvtx.pop_range(domain="training")
job.end()
"""
    process = record(tmp_path / "c", _IMPORT + body)
    ranges = _by_text(process)
    outer, inner, moment = (ranges[text] for text in ("outer", "inner", "moment"))
    assert (outer.domain, inner.domain, moment.domain) == ("training", "", "training")
    domain = next(number for number, name in process.range_domains.items() if name == "training")
    assert process.range_categories[domain, outer.category] == "phase"
    table = own_details(process, "ranges")
    assert dict(zip(table["text"], table["category"], strict=True))["outer"] == "phase"
    assert (outer.payload_type, outer.payload) == (layout.PAYLOAD_I64, 7)
    assert struct.unpack("<d", struct.pack("<q", inner.payload))[0] == 0.5
    assert (inner.parent, moment.parent, outer.parent) == ("outer", "outer", "")
    assert moment.is_mark
    assert {one.source for one in ranges.values()} == {layout.RANGE_NVTX}


def test_calls_lie_in_the_ranges_around_them(tmp_path: Path) -> None:
    body = """
job.begin()
job.send()
with nvtx.annotate("around"): job.send()
job.send()
"""
    process = record(tmp_path / "c", _IMPORT + body)
    calls = events_of(process, ("P2pApi",))["P2pApi"]
    around = _by_text(process)["around"]
    began = calls.one(START_NS)
    inside = (began >= around.start_ns) & (began <= around.end_ns)
    assert inside.tolist() == [False, False, True, True, False, False]
    assert (calls.keys > around.key).tolist() == [False, False, True, True, True, True]


def test_ranges_open_at_the_first_init_are_kept_with_their_start(tmp_path: Path) -> None:
    body = """
nvtx.push_range("forgotten"); nvtx.pop_range()
nvtx.push_range("outer"); nvtx.push_range("inner", domain="other")
before = time.monotonic_ns()
time.sleep(0.05)
job.begin(); job.send()
nvtx.pop_range(domain="other"); nvtx.pop_range()
open(os.environ["NOTE"], "w").write(str(before))
"""
    process = record(tmp_path / "c", _IMPORT + body, NOTE=str(tmp_path / "note"))
    ranges = _by_text(process)
    assert set(ranges) == {"outer", "inner"}
    assert ranges["inner"].parent == "outer"
    assert (
        ranges["outer"].start_ns <= ranges["inner"].start_ns <= int((tmp_path / "note").read_text())
    )
    assert min(ranges["outer"].end_ns, ranges["inner"].end_ns) > 0


def test_domains_are_stacks_of_their_own(tmp_path: Path) -> None:
    body = """
job.begin()
nvtx.push_range("a", domain="A"); nvtx.push_range("b", domain="B")
nvtx.pop_range(domain="A")
nvtx.push_range("c", domain="B")
for _ in range(5): nvtx.pop_range(domain="B")
for _ in range(5): nvtx.pop_range(domain="A"); nvtx.pop_range()
nvtx.push_range("after"); nvtx.pop_range()
"""
    ranges = _by_text(record(tmp_path / "c", _IMPORT + body))
    assert {text: one.parent for text, one in ranges.items()} == {
        "a": "", "b": "a", "c": "b", "after": "",
    }  # fmt: skip
    assert ranges["a"].end_ns < ranges["c"].start_ns
    assert all(one.end_ns > 0 for one in ranges.values())


def test_a_range_may_end_in_another_thread(tmp_path: Path) -> None:
    body = """
job.begin()
number = nvtx.start_range("loose")
thread = threading.Thread(target=nvtx.end_range, args=(number,)); thread.start(); thread.join()
nvtx.end_range(number)
"""
    loose = _by_text(record(tmp_path / "c", _IMPORT + body))["loose"]
    assert not loose.is_nested
    assert loose.end_ns > loose.start_ns


def test_pushes_that_nobody_pops_cost_neither_later_ranges_nor_their_ends(tmp_path: Path) -> None:
    body = """
job.begin()
for i in range(500): nvtx.push_range("leaked")
for i in range(20): nvtx.push_range(f"step {i}"); nvtx.pop_range()
"""
    ranges = ranges_of(record(tmp_path / "c", _IMPORT + body))
    steps = [one for one in ranges if one.text.startswith("step ")]
    assert len(steps) == 20
    assert all(one.end_ns > 0 for one in steps)
    assert sum(one.text == "leaked" and one.end_ns < 0 for one in ranges) == 500


def test_an_open_range_holds_no_event_back(tmp_path: Path) -> None:
    body = """
job.begin()
nvtx.push_range("epoch"); nvtx.push_range("step")
job.send()
print("sent", flush=True)
sys.stdin.readline()
"""
    program = start_program(tmp_path / "c", _IMPORT + body)
    assert program.stdout is not None
    assert program.stdout.readline() == "sent\n"
    log = eventually(lambda: _log_with(tmp_path / "c", layout.KINDS["P2pApi"]))
    page = eventually(lambda: _page_with_ranges(log.parent))
    texts = open_process(log.parent).range_texts
    assert [texts[int(slot["text"])] for _, _, slot in page.open_ranges] == ["epoch", "step"]
    program.kill()
    program.communicate()


def _log_with(capture: Path, kind: int) -> Path | None:
    """The log of a job while it runs, once it has a slot of a kind."""
    for log in capture.glob("*/log.*"):
        content = log.read_bytes()
        if kind in np.frombuffer(content[-(len(content) // 64) * 64 :], np.uint8)[::64]:
            return log
    return None


def _page_with_ranges(folder: Path):  # type: ignore[no-untyped-def]
    page = read_live_page(folder)
    return page if page and page.open_ranges else None


@pytest.mark.parametrize("ring", ["", "4M"])
def test_a_killed_process_leaves_its_open_ranges(tmp_path: Path, ring: str) -> None:
    body = """
job.begin()
nvtx.push_range("step 7")
with nvtx.annotate("done"): job.send()
nvtx.push_range("backward")
print("now", flush=True)
sys.stdin.readline()
"""
    program = start_program(tmp_path / "c", _IMPORT + body, NCCLSCOPE_RING=ring)
    assert program.stdout is not None
    assert program.stdout.readline() == "now\n"
    program.send_signal(signal.SIGKILL)
    program.communicate()
    ncclscope("salvage", tmp_path / "c")
    ranges = _by_text(only_process(tmp_path / "c"))
    assert {text: one.end_ns > 0 for text, one in ranges.items()} == {
        "step 7": False, "done": True, "backward": False,
    }  # fmt: skip


def test_a_ring_keeps_the_newest_ranges(tmp_path: Path) -> None:
    body = """
job.begin()
nvtx.push_range("whole run")
for i in range(60000): nvtx.push_range("step"); nvtx.pop_range()
for i in range(20):  # until the recorder has room again: ranges are the first to go
    time.sleep(0.1)
    with nvtx.annotate("last"): job.send()
nvtx.pop_range()
job.end()
"""
    process = record(tmp_path / "c", _IMPORT + body, NCCLSCOPE_RING="1M")
    ranges = _by_text(process)
    assert ranges["last"].end_ns > 0
    assert process.counters["rotated_out", 0] > 0


def test_fork_children_record_nothing_and_run_on(tmp_path: Path) -> None:
    body = """
nvtx.push_range("before")
job.begin()
nvtx.push_range("parent")
if os.fork() == 0:
    for i in range(100): nvtx.push_range(f"child {i}")
    for i in range(200): nvtx.pop_range()
    nvtx.mark("child"); nvtx.end_range(nvtx.start_range("child"))
    os._exit(0)
assert os.wait()[1] == 0
nvtx.pop_range(); nvtx.pop_range()
"""
    assert set(_by_text(record(tmp_path / "c", _IMPORT + body))) == {"before", "parent"}


def test_threads_come_and_go_with_their_ranges(tmp_path: Path) -> None:
    body = """
nvtx.push_range("main")
job.begin()
def work(number):
    nvtx.push_range(f"thread {number}"); nvtx.push_range("never popped")
for number in range(100):
    thread = threading.Thread(target=work, args=(number,)); thread.start(); thread.join()
nvtx.pop_range()
"""
    ranges = ranges_of(record(tmp_path / "c", _IMPORT + body))
    assert sum(one.text.startswith("thread ") for one in ranges) == 100
    assert {one.parent for one in ranges if one.text.startswith("thread ")} == {""}


@pytest.mark.parametrize(
    ("choice", "texts"),
    [("on", {"a", "b", "c"}), ("off", set()), ("A", {"a"}), ("default,B", {"b", "c"})],
)
def test_domains_are_chosen_by_name(tmp_path: Path, choice: str, texts: set[str]) -> None:
    body = """
for text, domain in (("a", "A"), ("b", "B"), ("c", None)): nvtx.push_range(text, domain=domain)
job.begin(); job.send()
for domain in ("A", "B", None): nvtx.pop_range(domain=domain)
"""
    assert set(_by_text(record(tmp_path / "c", _IMPORT + body, NCCLSCOPE_RANGES=choice))) == texts


def test_long_and_endless_texts_are_cut_and_bounded(tmp_path: Path) -> None:
    body = """
job.begin()
nvtx.push_range("long " * 100); nvtx.pop_range()
nvtx.push_range("gr\\u00fc\\u00df \\U0001F600"); nvtx.pop_range()
for i in range(20000): nvtx.push_range(f"text {i} of very many"); nvtx.pop_range()
"""
    process = record(tmp_path / "c", _IMPORT + body)
    ranges = ranges_of(process)
    texts = {one.text for one in ranges}
    assert len(process.range_texts) == 16_383
    assert ("long " * 100)[:120] in texts
    assert "gr\u00fc\u00df \U0001f600" in texts
    assert {f"text {i} of very many" for i in range(20_000)} <= texts
    assert process.counters["range_texts_dropped", 0] == 20_002 - 16_383


def test_profile_mode_keeps_steps_and_their_times_only(tmp_path: Path) -> None:
    body = """
job.begin()
for i in range(12):
    with nvtx.annotate("enumerate(DataLoader)#Loader.__next__"): time.sleep(0.002)
    with nvtx.annotate(f"secret {i}"): job.send()
    with nvtx.annotate("Optimizer.step#Adam.step"): time.sleep(0.002)
    with nvtx.annotate("Optimizer.step#Other.step"): pass
job.end()
"""
    process = record(tmp_path / "c", _IMPORT + body, NCCLSCOPE_MODE="profile")
    assert ranges_of(process) == []
    assert process.live is not None
    step = process.live.step
    assert int(step["steps"]) == 12
    assert process.range_texts == {int(step["text"]): "Optimizer.step#Adam.step"}
    assert 4e6 < int(step["last_ns"]) < 60e9
    assert int(step["data_ns"]) > 12 * 2e6
    assert int(step["phase"]) == layout.PHASE_UNKNOWN


def test_more_is_recorded_from_the_moment_ctl_asks_for_it(tmp_path: Path) -> None:
    body = """
job.begin()
nvtx.push_range("open all the time")
for line in sys.stdin:
    with nvtx.annotate(line.strip()): job.send()
    print("done", flush=True)
nvtx.pop_range()
job.end()
"""
    program = start_program(tmp_path / "c", _IMPORT + body, NCCLSCOPE_MODE="profile")
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write("before\n")
    program.stdin.flush()
    program.stdout.readline()
    eventually(lambda: bool(list((tmp_path / "c").glob("*/live"))))
    assert ncclscope("ctl", "--mode", "trace", tmp_path / "c").returncode == 0
    (folder,) = (path for path in (tmp_path / "c").iterdir() if path.is_dir())
    eventually(lambda: [one.mode for one in open_process(folder).mode_changes] == ["trace"])
    program.stdin.write("after\n")
    program.communicate()
    assert set(_by_text(only_process(tmp_path / "c"))) == {"open all the time", "after"}


def test_nccls_own_calls_are_left_out_where_they_are_events(tmp_path: Path) -> None:
    out = {}
    for version in (4, 5):
        capture = tmp_path / str(version)
        _player(capture, "--calls", 20_000, "--threads", 1, "--version", version)
        nccl = [one for one in ranges_of(only_process(capture)) if one.domain == "NCCL"]
        out[version] = {one.text for one in nccl}
    assert "ncclAllReduce" in out[4]
    assert "ncclAllReduce" not in out[5]
    assert out[4] - out[5] == {"ncclAllReduce"}


def test_payloads_with_a_schema_are_read_back(tmp_path: Path) -> None:
    """The player's payloads are bytes of one value."""
    _player(tmp_path / "c", "--calls", 40_000, "--threads", 1)
    process = only_process(tmp_path / "c")
    fields = [field.name for field in process.range_schemas[1]]
    assert fields == ["communicator", "parent", "color", "key"]
    payloads = [one for one in range_payloads(process).values() if len(one) == 4]
    assert len(payloads) > 100
    in_table = [text for text in own_details(process, "ranges")["fields"] if text]
    assert len(in_table) >= len(payloads)
    assert sum(set(json.loads(text)) == set(fields) for text in in_table) == len(payloads)
    for payload in payloads:
        sizes = zip(payload.values(), (8, 8, 4, 4), strict=True)
        content = b"".join((int(v) & (1 << 8 * n) - 1).to_bytes(n, "little") for v, n in sizes)
        assert len(set(content)) == 1


@pytest.mark.parametrize("seed", [1, 2])
def test_hostile_use_of_nvtx_does_no_harm(tmp_path: Path, seed: int) -> None:
    # On a busy machine the helper thread needs longer than the two seconds that it gets.
    load = ("--calls", 300_000, "--seed", seed, "--threads", 4)
    _player(tmp_path / "c", *load, NCCLSCOPE_EXIT_WAIT="60")
    process = only_process(tmp_path / "c")
    assert (process.damage.bad_slots, process.damage.unreadable) == (0, [])
    assert process.dropped() == 0 or process.counters["dropped_ranges", 0] > 0
    assert process.ended
    assert set(process.range_domains.values()) == {"NCCL", "mine", "d\u00f6main"}
    ended = [one for one in ranges_of(process) if one.end_ns > 0]
    assert ended
    assert all(one.end_ns >= one.start_ns for one in ended)


def test_ranges_give_way_before_events_when_memory_is_short(tmp_path: Path) -> None:
    _player(tmp_path / "c", "--calls", 400_000, "--threads", 4, NCCLSCOPE_ARENA="512K")
    process = only_process(tmp_path / "c")
    dropped = process.counters.get(("dropped_ranges", 0), 0)
    assert dropped > 0
    assert process.dropped() <= dropped


def test_a_disabled_recorder_takes_no_ranges(tmp_path: Path) -> None:
    body = "nvtx.push_range('x'); job.begin(); job.send(); nvtx.pop_range()\n"
    program = start_program(tmp_path / "c", _IMPORT + body, NCCLSCOPE_DISABLE="1")
    program.communicate(timeout=60)
    assert program.returncode == 0
    assert not (tmp_path / "c").exists()


def test_packed_captures_keep_names_and_no_other_texts(tmp_path: Path) -> None:
    body = """
job.begin()
nvtx.push_range("FSDP::all_gather (blocks.3)"); nvtx.push_range("forward")
nvtx.push_range("the secret prompt of /home/alice", category="secret category")
for i in range(16400): nvtx.push_range(f"secret {i} x"); nvtx.pop_range()
for i in range(3): nvtx.pop_range()
print("now", flush=True)
sys.stdin.readline()
"""
    program = start_program(tmp_path / "c", _IMPORT + body)
    assert program.stdout is not None
    program.stdout.readline()
    time.sleep(1.2)  # some of it on disk, the rest in shared memory
    program.kill()
    program.communicate()
    (folder,) = (path for path in (tmp_path / "c").iterdir() if path.is_dir())
    (folder / "context.jsonl").write_text('{"torch":"2.11.0+cu130","path":"/home/secret"}\nno\n')
    assert ncclscope("pack", tmp_path / "c", "-o", tmp_path / "p.tar.gz").returncode == 0
    with tarfile.open(tmp_path / "p.tar.gz") as tar:
        tar.extractall(tmp_path / "out", filter="data")
    for path in (tmp_path / "out").rglob("*"):
        assert path.is_dir() or b"secret" not in path.read_bytes(), path
    process = only_process(tmp_path / "out" / "p")
    texts = set(process.range_texts.values())
    assert {"FSDP::all_gather (blocks.3)", "forward"} <= texts
    assert len(ranges_of(process)) == 16_403
    (context,) = (tmp_path / "out").rglob("context.jsonl")
    assert context.read_text() == '{"torch":"2.11.0+cu130","path":"removed"}\n'


def test_scenarios_plant_ranges_in_simulated_jobs(tmp_path: Path) -> None:
    scenario = tmp_path / "s"
    scenario.write_text(
        "ranks = 2\nsteps = 3\ncompute_ms = 1\ncall = world AllReduce 1K\n"
        "call = world AllReduce 2K\nrange = step%20{step} 0 1\nrange = data 0 ms=1 source=2\n"
        "range = text=blocks.1 first=1 last=1\nrange = ncclscope.step first=2 source=5 mark=1\n"
    )
    command = [sys.executable, "-m", "ncclscope.simulation", str(scenario)]
    assert ncclscope("run", "-o", tmp_path / "c", "--", *command).returncode == 0
    for process in open_capture(tmp_path / "c").processes:
        ranges = ranges_of(process)
        parents = {one.text: one.parent for one in ranges}
        assert parents == {
            **{f"step {step}": "" for step in range(3)},
            "data": "step 2", "blocks.1": "step 2", "ncclscope.step": "",
        }  # fmt: skip
        assert len(ranges) == 12
        assert process.live is not None
        assert int(process.live.step["steps"]) == 3
