"""Root's salvage among users who put things in its way."""

import fcntl
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ncclscope.capture import header
from ncclscope.capture import salvage as salvage_module
from ncclscope.capture.reader import open_capture
from ncclscope.capture.salvage import arena_dir, salvage, salvage_for_all
from tests.support.player import folder_of, ncclscope, player, recording, start_player
from tests.support.waiting import eventually, wait_for_heartbeats

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="plays several users: needs root")
USER, OTHER = 12345, 12346


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A directory that every user can reach: pytest's own are private."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture(autouse=True)
def _tidy_shared_memory() -> Iterator[None]:
    yield
    for uid in (USER, OTHER):
        path = arena_dir(uid)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def own_directory(uid: int, owner: int, mode: int = 0o700) -> Path:
    """The place of a user's arenas, as its owner made it."""
    path = arena_dir(uid)
    path.mkdir()
    path.chmod(mode)
    os.chown(path, owner, owner)
    return path


def give(path: Path, uid: int) -> None:
    os.chown(path, uid, uid, follow_symlinks=False)


def dead_arena(capture: Path, directory: Path, uid: int) -> Path:
    """What a killed process of that user left."""
    killed = player(
        *["load", "--collectives", 20, "--end", "kill"],
        env=recording(capture, NCCLSCOPE_ARENA="2M"),
    )
    assert killed.returncode == -9
    made = max(arena_dir().iterdir(), key=lambda path: path.stat().st_mtime_ns)
    shutil.copyfile(made, directory / made.name)
    made.unlink()
    shutil.rmtree(capture, ignore_errors=True)  # it was root's
    capture.mkdir()
    give(capture, uid)
    give(directory / made.name, uid)
    return directory / made.name


def look(path: Path) -> list[tuple[str, int, int, int]]:
    paths = [path, *sorted(path.rglob("*"))]
    return [(str(p), p.lstat().st_mode, p.lstat().st_uid, p.lstat().st_size) for p in paths]


def test_a_users_arenas_are_brought_in_with_that_users_rights(open_to_all: Path) -> None:
    arena = dead_arena(open_to_all / "c", own_directory(USER, USER), USER)
    printed = ncclscope("salvage")
    assert str(open_to_all / "c" / arena.name) in printed.stdout
    assert not arena.exists()
    copy = open_to_all / "c" / arena.name / "arena"
    assert copy.stat().st_uid == USER
    (process,) = open_capture(open_to_all / "c").processes
    assert process.calls_counted() == 20


@pytest.mark.parametrize(
    ("owner", "mode", "reason"),
    [(OTHER, 0o777, f"belongs to user {OTHER}"), (USER, 0o777, "is open to others")],
)
def test_a_directory_that_somebody_else_can_have_prepared(
    owner: int, mode: int, reason: str, open_to_all: Path
) -> None:
    directory = own_directory(USER, owner, mode)
    dead_arena(open_to_all / "c", directory, USER)
    before = look(directory)
    printed = ncclscope("salvage")
    assert f"ncclscope: left alone: {directory} {reason}" in printed.stderr
    assert look(directory) == before
    assert not list((open_to_all / "c").iterdir())


def test_a_link_in_the_place_of_a_directory(open_to_all: Path) -> None:
    elsewhere = open_to_all / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    give(elsewhere, USER)
    dead_arena(open_to_all / "c", elsewhere, USER)
    arena_dir(USER).symlink_to(elsewhere)
    before = look(elsewhere)
    assert "is no directory, or a link to one" in ncclscope("salvage").stderr
    assert look(elsewhere) == before


def test_things_that_are_no_arenas(open_to_all: Path) -> None:
    """FIFOs do not hold it up, huge files do not fill the disk, links are not followed."""
    directory = own_directory(USER, USER)
    secret = open_to_all / "secret"
    secret.write_bytes(b"root's")
    os.mkfifo(directory / "fifo")
    (directory / "link").symlink_to(secret)
    os.link(secret, open_to_all / "hard")
    with (directory / "huge").open("wb") as file:
        file.truncate(1 << 43)
    forged = dead_arena(open_to_all / "c", directory, USER)
    values = dict(zip(header.PLACES, header.STRUCT.unpack_from(forged.read_bytes()), strict=True))
    with forged.open("r+b") as file:
        file.write(header.STRUCT.pack(*(values | {"chunk_count": 1 << 30}).values()))
    for name in ("fifo", "link", "huge"):
        give(directory / name, USER)
    before = look(directory), look(open_to_all)
    assert salvage_for_all() == []
    assert (look(directory), look(open_to_all)) == before


@pytest.mark.parametrize("plant", ["link", "directory"])
def test_plants_in_a_shared_capture(plant: str, open_to_all: Path) -> None:
    arena = dead_arena(open_to_all / "c", own_directory(USER, USER), USER)
    capture = open_to_all / "c"
    give(capture, 0)
    capture.chmod(0o1777)
    others = open_to_all / "others"
    others.mkdir()
    others.chmod(0o777)
    give(others, OTHER)
    folder = capture / arena.name
    if plant == "link":
        folder.symlink_to(others)
    else:
        folder.mkdir()
        os.mkfifo(folder / "arena.partial")
        folder.chmod(0o777)
        give(folder, OTHER)
    before = look(capture), look(others)
    refused: list[str] = []
    assert salvage_for_all(None, refused) == []
    assert any(str(folder) in text for text in refused)
    assert (look(capture), look(others)) == before
    assert stat.S_ISREG(arena.stat().st_mode), "it stays until its capture can be written to"


def test_a_user_cannot_hold_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user may stop the process that has the user's rights."""
    own_directory(USER, USER)

    def wait(capture: Path | None = None, refused: list[str] | None = None) -> list[Path]:
        if os.getuid() == USER:
            time.sleep(600)
        return []

    monkeypatch.setattr(salvage_module, "salvage", wait)
    monkeypatch.setattr(salvage_module, "_PATIENCE_S", 0.2)
    refused: list[str] = []
    assert salvage_for_all(None, refused) == []
    assert refused == [f"{arena_dir(USER)} took longer than 0 s"]


def test_a_lock_that_is_held_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    """As by the recorder of another process that looks for dead arenas, too."""
    killed = player(
        *["load", "--collectives", 20, "--end", "kill"],
        env=recording(tmp_path / "c", NCCLSCOPE_ARENA="2M"),
    )
    assert killed.returncode == -9
    arena = max(arena_dir().iterdir(), key=lambda path: path.stat().st_mtime_ns)
    with arena.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        release = threading.Timer(0.2, lambda: fcntl.flock(file, fcntl.LOCK_UN))
        release.start()
        assert salvage(tmp_path / "c") == [tmp_path / "c" / arena.name]
        release.join()


def rewritten_header(arena: Path, **changes: int) -> None:
    """Another release's arena, or a damaged one."""
    values = dict(zip(header.PLACES, header.STRUCT.unpack_from(arena.read_bytes()), strict=True))
    with arena.open("r+b") as file:
        file.write(header.STRUCT.pack(*(values | changes).values()))


def killed_process(capture: Path) -> Path:
    """The arena of a killed process of this user."""
    ended = player(
        *["load", "--collectives", 20, "--end", "kill"],
        env=recording(capture, NCCLSCOPE_ARENA="2M"),
    )
    assert ended.returncode == -9
    return max(arena_dir().iterdir(), key=lambda path: path.stat().st_mtime_ns)


def test_what_cannot_be_brought_in_is_named(tmp_path: Path) -> None:
    """What it is, and what to do with it; nothing of it is deleted."""
    newer, renamed = killed_process(tmp_path / "newer"), killed_process(tmp_path / "renamed")
    rewritten_header(newer, major=9, minor=3)
    other_name = renamed.rename(renamed.with_name("renamed"))
    (arena_dir() / "mine").write_text("a file of the user's")
    os.mkfifo(arena_dir() / "fifo")
    refused: list[str] = []
    try:
        assert salvage(None, refused) == []
        kept = sorted(path.name for path in arena_dir().iterdir())
        printed = ncclscope("salvage", tmp_path / "newer")
    finally:
        for path in (newer, other_name, arena_dir() / "mine", arena_dir() / "fifo"):
            path.unlink()
    assert kept == sorted(["fifo", "mine", newer.name, "renamed"])
    by_name = {
        text.split(arena_dir().name + "/")[1].split()[0].rstrip(":"): text for text in refused
    }
    assert sorted(by_name) == kept
    assert "its format 9.3 is newer than this release reads" in by_name[newer.name]
    assert "Install a newer ncclscope" in by_name[newer.name]
    assert by_name[newer.name].endswith("or delete it")
    assert by_name["renamed"].endswith(f"it was renamed. Name it {renamed.name} again")
    assert "it is no arena of a process. Delete it, if you do not need it" in by_name["mine"]
    assert "is no regular file of this user" in by_name["fifo"]
    assert printed.stderr.count("left alone") == 1, "junk is not of that capture, the newer may be"
    assert "its format 9.3 is newer" in printed.stderr


def test_an_arena_of_a_newer_minor_release_is_brought_in(tmp_path: Path) -> None:
    arena = killed_process(tmp_path / "c")
    rewritten_header(arena, minor=99)
    refused: list[str] = []
    assert salvage(None, refused) == [tmp_path / "c" / arena.name]
    assert refused == []


def test_a_living_process_of_a_newer_release_is_not_named(tmp_path: Path) -> None:
    arena = killed_process(tmp_path / "c")
    rewritten_header(arena, major=9)
    refused: list[str] = []
    with arena.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert salvage(None, refused) == []
    arena.unlink()
    assert refused == []


def test_the_recorder_gives_up_nothing_but_arenas_of_its_own_format(tmp_path: Path) -> None:
    """After a day; another release may read the others, or they are the user's own."""
    lost = tmp_path / "lost"
    own, newer = killed_process(lost), killed_process(tmp_path / "newer")
    shutil.rmtree(lost)
    lost.write_text("in its way")
    rewritten_header(newer, major=9)
    users_file, empty = arena_dir() / "users_file", arena_dir() / "empty"
    users_file.write_bytes(b"m" * (1 << 20))
    empty.write_bytes(bytes(1 << 20))
    for path in (own, newer, users_file, empty):
        os.utime(path, (0, 0))
    job = tmp_path / "job"
    with start_player(
        "load", "--collectives", 10_000, "--rate", 100, env=recording(job)
    ) as running:
        eventually(lambda: not own.exists() and not empty.exists())
        wait_for_heartbeats(folder_of(job), 2)
        running.kill()
    salvage(job)
    left = sorted(path.name for path in arena_dir().iterdir())
    for path in (newer, users_file):
        path.unlink(missing_ok=True)
    assert left == sorted([newer.name, "users_file"])
