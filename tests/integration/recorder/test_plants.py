"""What another user of the machine puts in the recorder's way is refused, named and left alone."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ncclscope.capture.reader import open_capture
from ncclscope.capture.salvage import arena_dir, salvage
from ncclscope.native import player_path
from tests.support.player import folder_of, player, recording, start_player
from tests.support.waiting import wait_for_heartbeats

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="plays two users: needs root")
OTHER = 12345
SECRET = b"not yours"
LOAD = [
    "load",
    "--collectives",
    "50",
    "--rate",
    "70000",
]  # for a second: the log is written at its end


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory that everybody may write to, and nobody may delete others' files in."""
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(0o1777)
    return directory


@pytest.fixture
def free_arena_dir() -> Iterator[Path]:
    """The place of this user's arenas, empty."""
    aside = arena_dir().with_name("aside")
    if arena_dir().exists():
        arena_dir().rename(aside)
    yield arena_dir()
    if arena_dir().is_dir() and not arena_dir().is_symlink():
        shutil.rmtree(arena_dir())
    else:
        arena_dir().unlink()
    if aside.exists():
        aside.rename(arena_dir())


def plant_directory(path: Path, target: Path) -> None:
    """Another user's, with things where the recorder's files would be."""
    path.mkdir()
    if path.stat().st_dev == target.stat().st_dev:
        os.link(target / "meta", path / "meta")
    (path / "new.meta").write_bytes(SECRET)
    os.mkfifo(path / "arena.partial")
    os.mkfifo(path / "control")
    path.chmod(0o777)
    os.chown(path, OTHER, OTHER)


def plant_link(path: Path, target: Path) -> None:
    path.symlink_to(target)
    os.chown(path, OTHER, OTHER, follow_symlinks=False)


def plant_fifo(path: Path, _: Path) -> None:
    os.mkfifo(path)
    os.chown(path, OTHER, OTHER)


def plant_file(path: Path, _: Path) -> None:
    path.write_bytes(SECRET)
    os.chown(path, OTHER, OTHER)


PLANTS = pytest.mark.parametrize("plant", [plant_directory, plant_link, plant_fifo, plant_file])
Plant = Callable[[Path, Path], None]


def look(path: Path) -> list[tuple[str, int, int, bytes]]:
    """A path and all below it: kinds, owners, contents."""
    paths = [path, *sorted(path.rglob("*"))]
    return [
        (str(p), p.lstat().st_mode, p.lstat().st_uid, p.read_bytes() if p.is_file() else b"")
        for p in paths
    ]


def victim_in(directory: Path) -> Path:
    """A folder of ours that a plant leads to."""
    victim = directory / "victim"
    victim.mkdir()
    (victim / "meta").write_bytes(SECRET)
    return victim


@PLANTS
def test_plants_in_shared_memory(plant: Plant, tmp_path: Path, free_arena_dir: Path) -> None:
    victim = victim_in(tmp_path)
    plant(free_arena_dir, victim)
    before = look(victim), look(free_arena_dir)
    played = player(*LOAD, env=recording(tmp_path / "c", NCCL_DEBUG="INFO"))
    assert played.returncode == 0, played.stderr
    assert (
        f"private memory: {free_arena_dir} is not a directory of this user alone" in played.stderr
    )
    assert (look(victim), look(free_arena_dir)) == before
    (process,) = open_capture(tmp_path / "c").processes
    assert process.calls_counted() == 50
    assert any("shared memory is not used" in note for note in process.notes)


def start_held(capture: Path) -> tuple["subprocess.Popen[str]", Path]:
    """A job that begins when it gets a line, and the folder that it will want."""
    words = ["sh", "-c", 'read line; exec "$@"', "sh", str(player_path()), *LOAD]
    env = recording(capture, NCCL_DEBUG="INFO", NCCLSCOPE_EXIT_WAIT="1")
    pipe = subprocess.PIPE
    held = subprocess.Popen(words, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    fields = Path(f"/proc/{held.pid}/stat").read_text().rpartition(")")[2].split()
    host = re.sub(r"[/.]", "_", os.uname().nodename)
    return held, capture / f"{host}.{held.pid}.{fields[19]}"


@PLANTS
def test_plants_in_the_place_of_a_process_folder(
    plant: Plant, tmp_path: Path, shared: Path
) -> None:
    """The arena keeps everything until the plant is gone."""
    victim = victim_in(tmp_path)
    held, folder = start_held(shared)
    with held:
        plant(folder, victim)
        before = look(victim), look(folder)
        _, log = held.communicate("go\n", timeout=60)
        assert held.returncode == 0, log
    reason = {
        plant_directory: "it belongs to another user",
        plant_link: "it is a symbolic link",
    }.get(plant, "Not a directory")
    assert f"{folder}: {reason}" in log
    assert (look(victim), look(folder)) == before
    refused: list[str] = []
    assert salvage(shared, refused) == []
    assert len(refused) == 1
    assert str(folder) in refused[0]
    assert (look(victim), look(folder)) == before
    folder.rename(tmp_path / "aside")
    assert salvage(shared) == [folder]
    (process,) = open_capture(shared).processes
    assert process.calls_counted() == 50


def test_another_users_orders_are_ignored(shared: Path) -> None:
    load = ["load", "--collectives", 1 << 30, "--rate", 20_000]
    with start_player(*load, env=recording(shared, "profile")) as running:
        folder = folder_of(shared)
        control = shared / "control"
        control.write_text("serial 7\nmode full\n")
        os.chown(control, OTHER, OTHER)
        wait_for_heartbeats(folder, 3)
        (process,) = open_capture(shared).processes
        running.kill()
    assert not process.mode_changes
    assert any("control is ignored: it belongs to user 12345" in note for note in process.notes)
