"""A second profiler behind ours: it hears what NCCL says, with its own handles and mask."""

import gzip
import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ncclscope.capture import layout
from ncclscope.capture.metadata import arena_counters
from ncclscope.capture.reader import open_capture
from ncclscope.capture.salvage import arena_dir
from ncclscope.capture.segment import open_file
from ncclscope.nccl.events import INTERFACES
from tests.support.callback_script import every_event
from tests.support.paths import C_SOURCES, ROOT
from tests.support.player import (
    INTERFACE_FOLDERS,
    dump,
    player,
    read_transcript,
    recording,
    start_player,
    transcript_files,
    write_transcript,
)
from tests.support.transcript_check import check_process

SOURCE = C_SOURCES / "logging_plugin.c"
KEYS = ("cb", "ctx", "h", "p", "type", "group", "s")


@pytest.fixture(scope="module")
def logging_plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("plugin") / "libnccl-profiler-logging.so"
    sources = ROOT / "native" / "src"
    command = ["gcc", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-I", sources]
    subprocess.run([*command, "-o", library, SOURCE, "-lpthread"], check=True)
    return library


def play(
    tmp_path: Path, transcript: Path, plugin: Path | str, mode: str = "full", **variables: str
) -> list[Any]:
    log = tmp_path / "log.jsonl"
    env = recording(
        tmp_path / "c", mode, NCCLSCOPE_CHAIN=str(plugin), LOGGING_PLUGIN_FILE=str(log), **variables
    )
    played = player("play", transcript, env=env)
    assert played.returncode == 0, played.stderr
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def reduced(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a chained plugin can know of a callback, events numbered in the order of their starts."""
    starts = [line["h"] for line in lines if line["cb"] == "start"]
    number = {handle: place + 1 for place, handle in enumerate(starts)}
    out = []
    for line in lines:
        kept = {key: line[key] for key in KEYS if line.get(key)}
        out.append({key: number[v] if key in ("h", "p", "group") else v for key, v in kept.items()})
    return out


@pytest.mark.parametrize("folder", INTERFACE_FOLDERS)
def test_both_see_every_callback(folder: str, logging_plugin: Path, tmp_path: Path) -> None:
    file = transcript_files(folder)[0]
    plain = tmp_path / "t.jsonl"
    plain.write_bytes(gzip.decompress(file.read_bytes()))
    heard = play(tmp_path, plain, logging_plugin)
    lines = read_transcript(file)
    assert reduced(heard) == reduced(lines)
    events = dump(tmp_path / "c")
    pid = int(events[0]["process"].split(".")[1])
    finalized = any(line["cb"] == "finalize" for line in lines)
    assert check_process(lines, events, finalized, pid) > 50


@pytest.mark.parametrize("version", INTERFACES)
def test_every_interface(version: int, logging_plugin: Path, tmp_path: Path) -> None:
    script = every_event(version)
    heard = play(tmp_path, write_transcript(tmp_path / "s.jsonl", script.lines), logging_plugin)
    assert reduced(heard) == reduced(script.lines)


def test_the_short_name_of_a_plugin(logging_plugin: Path, tmp_path: Path) -> None:
    """As NCCL takes it: NCCL_PROFILER_PLUGIN=logging becomes --chain logging."""
    script = every_event(6)
    path = write_transcript(tmp_path / "s.jsonl", script.lines)
    heard = play(tmp_path, path, "logging", LD_LIBRARY_PATH=str(logging_plugin.parent))
    assert reduced(heard) == reduced(script.lines)
    assert not open_capture(tmp_path / "c").processes[0].notes


def test_each_has_its_own_mask(logging_plugin: Path, tmp_path: Path) -> None:
    """Ours asks for profile events, theirs for proxy steps: neither hears more than it asked for."""
    plain = tmp_path / "t.jsonl"
    file = transcript_files("2.28.9-v5-2ranks")[0]
    plain.write_bytes(gzip.decompress(file.read_bytes()))
    lines = read_transcript(file)
    heard = play(tmp_path, plain, logging_plugin, mode="trace", LOGGING_PLUGIN_EVENTS="0x10")
    made = Counter(line["type"] for line in lines if line["cb"] == "start")
    theirs = Counter(line["type"] for line in heard if line["cb"] == "start")
    # A mask of ProxyStep alone: NCCL emits its parents, too.
    parents = (0x1, 0x2, 0x4, 0x8, 0x10, 0x100, 0x200, 0x400)
    assert theirs == {bit: made[bit] for bit in parents}
    ours = Counter(event["event"] for event in dump(tmp_path / "c"))
    assert ours["ProxyStep"] == ours["ProxyCtrl"] == 0
    assert ours["KernelCh"] == made[0x40]
    assert ours["KernelLaunch"] == made[0x800]


def test_theirs_goes_on_when_ours_is_out_of_memory(logging_plugin: Path, tmp_path: Path) -> None:
    log, blocked = tmp_path / "log.jsonl", tmp_path / "file"
    blocked.write_text("no directory")
    chain = {"NCCLSCOPE_CHAIN": str(logging_plugin), "LOGGING_PLUGIN_FILE": str(log)}
    env = recording(blocked / "c", NCCLSCOPE_ARENA="512K", NCCLSCOPE_EXIT_WAIT="0.1", **chain)
    with start_player("load", "--version", 6, "--threads", 2, "--collectives", 60, env=env) as ran:
        printed, _ = ran.communicate(timeout=60)
    assert " 0 starts refused" in printed, "they have a handle for each"
    heard = Counter(json.loads(line)["cb"] for line in log.read_text().splitlines())
    assert heard["start"] == heard["stop"] == 2 * 60 * 310
    (left,) = arena_dir().glob(f"*.{ran.pid}.*")
    header, data = open_file(left)
    counters = arena_counters(data, header)
    left.unlink()
    assert counters is not None
    full = counters[: layout.COUNTER_EVENTS * 2].sum()  # arena full, low priority
    assert full > 2 * 60 * 310 - 8 * 1023


@pytest.mark.parametrize(
    "broken", ["missing", "short name", "not a library", "no symbol", "init fails"]
)
def test_a_broken_plugin_is_left_out(broken: str, logging_plugin: Path, tmp_path: Path) -> None:
    script = every_event(6)
    plain = write_transcript(tmp_path / "s.jsonl", script.lines)
    plugin: Path | str = "/no/such/plugin.so"
    variables = {"NCCL_DEBUG": "INFO"}
    if broken == "short name":
        plugin = "nosuch"
    elif broken == "not a library":
        plugin = tmp_path / "text.so"
        plugin.write_text("hello")
    elif broken == "no symbol":
        plugin = "libm.so.6"
    elif broken == "init fails":
        plugin, variables["LOGGING_PLUGIN_INIT"] = logging_plugin, "3"
    play(tmp_path, plain, plugin, **variables)
    events = dump(tmp_path / "c")
    assert len(events) == 1 + script.handles
    (process,) = open_capture(tmp_path / "c").processes
    (note,) = process.notes
    assert note.startswith("NCCLSCOPE_CHAIN=")
    assert "is left out" in note
    if broken == "short name":
        assert "libnccl-profiler-nosuch.so: cannot open" in note
