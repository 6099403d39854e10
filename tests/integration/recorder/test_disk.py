"""Size limit and rotation, and a capture that is read while it grows."""

import subprocess
from pathlib import Path

from ncclscope.capture.dump_events import events_of
from ncclscope.capture.live_page import read_live_page
from ncclscope.capture.reader import open_capture
from tests.support.paths import ROOT
from tests.support.player import folder_of, player, recording, start_player
from tests.support.waiting import eventually, wait_for_heartbeats


def test_rotation_keeps_the_newest_within_the_limit(tmp_path: Path) -> None:
    capture = tmp_path / "c"
    env = recording(capture, NCCLSCOPE_DISK_LIMIT="8M")
    played = player("load", "--collectives", 2000, "--rate", 2_000_000, env=env)
    assert played.returncode == 0, played.stderr
    assert " 0 starts refused" in played.stdout
    process = open_capture(capture).processes[0]
    size = sum(path.stat().st_size for path in capture.glob("*/log.*"))
    assert 4 << 20 < size <= 8 << 20
    rotated = process.counters["rotated_out", 0]
    assert rotated * 64 > 8 << 20
    newest = max(e["fields"]["seqNumber"] for e in events_of(process) if e["event"] == "Coll")
    assert newest == 1999
    assert process.damage.bad_slots == 0


SEGMENTS = r"""
#include <stdio.h>
#include <stdlib.h>
#include "sink.h"
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        printf("%llu\n", (unsigned long long)sink_segment_bytes(strtoull(argv[i], NULL, 10)));
    return 0;
}
"""


def test_segments_reach_any_limit(tmp_path: Path) -> None:
    """Sixteen files hold what the limit grants, and a sixteenth to an eighth goes at a time."""
    native = ROOT / "native"
    source, program = tmp_path / "s.c", tmp_path / "s"
    source.write_text(SEGMENTS)
    folders = ["-I", native / "src", "-I", native / "include"]
    subprocess.run(["gcc", *folders, "-o", program, source], check=True)
    limits = [1 << 20, 8 << 20, 1 << 30, 4 << 30, 5 << 30, 64 << 30, 2 << 40]
    printed = subprocess.check_output([program, *map(str, limits)], text=True)
    sizes = [int(line) for line in printed.split()]
    assert sizes[:4] == [1 << 20, 1 << 20, 128 << 20, 256 << 20]
    for limit, size in zip(limits[1:], sizes[1:], strict=True):
        assert limit / 16 <= size <= limit / 8, limit
        assert size // 64 < 1 << 32, "readers number the slots of a file in 32 bits"


def test_a_capture_grows_while_it_is_read(tmp_path: Path) -> None:
    """Each reading of a running process is sound, and has more than the one before."""
    capture = tmp_path / "c"
    env = recording(capture, NCCLSCOPE_ARENA="4M")
    with start_player("load", "--collectives", 100_000, "--rate", 100_000, env=env) as running:
        try:
            folder = folder_of(capture)
            before = 0
            for _ in range(3):
                wait_for_heartbeats(folder, 2)
                process = open_capture(capture).processes[0]
                assert process.damage.bad_slots == 0
                assert not process.damage.unreadable
                assert not process.ended
                assert len(process.slots) > before
                before = len(process.slots)
        finally:
            running.kill()


def test_the_capture_directory_alone_is_two_heartbeats_behind(tmp_path: Path) -> None:
    """A heartbeat is a second: whatever is younger than two of them may be in memory only."""
    capture = tmp_path / "c"
    env = recording(capture)
    with start_player("load", "--collectives", 100_000, "--rate", 20_000, env=env) as running:
        try:
            folder = folder_of(capture)
            page = eventually(
                lambda: (
                    (page := read_live_page(folder)) and page.communicators["done"].any() and page
                )
            )
            wait_for_heartbeats(folder, 2)
            slots = [len(path.read_bytes()) // 64 for path in folder.glob("log.*")]
            assert sum(slots) > page.communicators["done"][0] * 310, "slots of a collective"
        finally:
            running.kill()
