"""Captures that change under a reader, or lie where nothing can be written."""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ncclscope.capture import deletion
from tests.support.paths import ROOT
from tests.support.player import ncclscope
from tests.support.writer import SyntheticSpec, synthetic

# Cuts a log to its first page when it has been mapped, as who copies over it does.
CUTTING = """
import os, sys
from ncclscope.capture import segment, slot_log
from ncclscope.cli import main
whole = segment.map_file
def map_and_cut(path):
    data = whole(path)
    os.truncate(path, 4096)
    return data
for module in [m for m in sys.modules.values() if getattr(m, "map_file", None) is whole]:
    module.map_file = map_and_cut
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("verb", [["report"], ["diagnose"], ["export", "-o", "out.jsonl"]])
def test_a_log_that_is_cut_while_it_is_read(verb: list[str], tmp_path: Path) -> None:
    """Reading what is gone would be a SIGBUS: the end, without a word."""
    synthetic(tmp_path / "c", SyntheticSpec(processes=1, operations=2000))
    command = [sys.executable, "-c", CUTTING, verb[0], str(tmp_path / "c"), *verb[1:]]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 1, ran.stderr
    assert "a file became shorter while it was read" in ran.stderr
    assert "Traceback" not in ran.stderr
    again = ncclscope("report", tmp_path / "c")
    assert "became shorter" not in again.stderr, "what was read of it then is not believed now"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system: needs root")
def test_a_capture_on_a_full_disk_is_read(tmp_path: Path) -> None:
    """Who filled the disk with a capture wants to look at it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk], check=True)
    try:
        synthetic(disk / "c", SyntheticSpec(processes=2, operations=50))
        with suppress(OSError), (disk / "rest").open("wb", buffering=0) as rest:
            while True:
                rest.write(bytes(4096))
        before = sorted(disk.rglob("*"))
        for words in (
            ["report"],
            ["diagnose"],
            ["timeline", "--html", str(tmp_path / "page.html")],
            ["export", "-o", str(tmp_path / "out.jsonl")],
        ):
            ran = ncclscope(words[0], disk / "c", *words[1:])
            assert ran.returncode == 0, (words, ran.stderr)
        assert [path for path in disk.rglob("*") if path not in before] in (
            [],
            [disk / "c/timeline"],
        )
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("name", [b"x\xff\xfe.1.2", b"a" * 240 + b".1.2"])
def test_a_folder_that_no_recorder_named_stops_no_verb(name: bytes, tmp_path: Path) -> None:
    """Another user can put one into a capture that all may write to."""
    capture = tmp_path / "c"
    synthetic(capture, SyntheticSpec(processes=1, operations=20))
    (folder,) = capture.iterdir()
    shutil.copytree(folder, capture / os.fsdecode(name))
    for words in (
        ["report"],
        ["diagnose"],
        ["timeline", "--html", str(tmp_path / "page.html")],
        ["export", "-o", str(tmp_path / "out.json")],
        ["export", "--to", "callbacks", "-o", str(tmp_path / "callbacks")],
        ["pack", "-o", str(tmp_path / "out.tar.gz")],
    ):
        ran = ncclscope(words[0], capture, *words[1:])
        assert ran.returncode == 0, (words, ran.stderr)
        assert "Traceback" not in ran.stderr
    assert "no recorder gives a folder such a name" in " ".join(
        ncclscope("report", capture).stdout.split()
    )


@pytest.mark.parametrize("folder", ["vm.1.1", "model", "timeline"])
def test_a_link_that_takes_a_folders_place_while_it_is_deleted(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root deletes a user's capture, and the user is quick."""
    capture, victim = tmp_path / "capture", tmp_path / "victim"
    for place in (capture / folder, victim):
        place.mkdir(parents=True)
        for name in ("meta", "manifest.json", "p.rows", "live", "resolv.conf"):
            (place / name).write_text("text")
    look = deletion._patterns_of

    def look_and_swap(*arguments: Any) -> Any:
        patterns = look(*arguments)
        (capture / folder).rename(tmp_path / "moved")
        (capture / folder).symlink_to(victim)
        return patterns

    monkeypatch.setattr(deletion, "_patterns_of", look_and_swap)
    deletion.delete(capture)
    assert len(list(victim.iterdir())) == 5
