"""Shared memory that processes left behind: finding it, and bringing it into its capture.

A process holds a lock on its arena as long as it lives; the kernel drops it however the process
dies. An arena that is not locked is copied into its capture as the file `arena`, which readers
treat like the arena itself.
"""

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from ncclscope.capture import layout
from ncclscope.capture.header import LARGEST_HEADER_BYTES, Header, parse_header
from ncclscope.errors import FormatError
from ncclscope.private_directory import make_private_directory

SHM_DIR = Path("/dev/shm")
_IN_USE = (bytes([layout.KINDS["Block"]]), bytes([layout.KINDS["Tallies"]]))


def arena_dir(uid: int | None = None) -> Path:
    """Where a user's processes keep their arenas; by default this user's."""
    return SHM_DIR / f"ncclscope-{os.getuid() if uid is None else uid}"


def _open_own(path: Path) -> int | None:
    """A descriptor of a regular file of this user; no links are followed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    info = os.fstat(fd)
    if stat.S_ISREG(info.st_mode) and info.st_uid == os.getuid():
        return fd
    os.close(fd)
    return None


def arena_of(folder: Path, identity: dict[str, str]) -> Path | None:
    """A process's arena: the salvaged copy in its folder, else the shared memory itself on its own
    host.
    """
    if (folder / "arena").exists():
        return folder / "arena"
    path = arena_dir() / folder.name
    if identity.get("arena", str(path)) != str(path) or not path.exists():
        return None
    return path if identity.get("boot_id", _boot_id()) == _boot_id() else None


def _boot_id() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _dead_arenas() -> Iterator[tuple[int, Path, Header]]:
    """Arenas of dead processes, locked while the caller uses them."""
    directory = arena_dir()
    if not directory.is_dir() or directory.is_symlink():
        return
    for path in sorted(directory.iterdir()):
        fd = _open_own(path)
        if fd is None:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield fd, path, parse_header(os.pread(fd, LARGEST_HEADER_BYTES, 0), path)
        except (BlockingIOError, FormatError):
            continue  # alive, or still being created
        finally:
            os.close(fd)


def _copy_used(fd: int, header: Header, target: Path) -> None:
    """Copies the front and the chunks in use; free chunks stay holes."""
    size = os.fstat(fd).st_size
    chunk_bytes = header.chunk_slots * layout.SLOT_BYTES
    partial = target.with_name(target.name + ".partial")
    out = os.open(
        partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        os.ftruncate(out, size)
        _copy_range(fd, out, 0, min(header.chunks_offset, size))
        for number in range(header.chunk_count):
            offset = header.chunks_offset + number * chunk_bytes
            if os.pread(fd, 1, offset) in _IN_USE:
                _copy_range(fd, out, offset, chunk_bytes)
    finally:
        os.close(out)
    os.replace(partial, target)


def _copy_range(fd: int, out: int, offset: int, length: int) -> None:
    while length > 0:
        data = os.pread(fd, min(length, 1 << 20), offset)
        if not data:
            return
        os.pwrite(out, data, offset)
        offset += len(data)
        length -= len(data)


def _was_deleted(home: Path, header: Header) -> bool:
    """Whether somebody deleted a capture that its process had made."""
    if not header.segment:
        return False
    try:
        home.stat()
    except FileNotFoundError:
        return True
    except OSError:
        pass  # it cannot be reached now
    return False


def _bring_in(wanted: Callable[[Path], bool]) -> list[Path]:
    """Copies dead arenas to those captures that are wanted, and returns the folders."""
    saved = []
    for fd, path, header in _dead_arenas():
        home, folder = Path(header.identity.get("capture", "")), header.identity.get("folder", "")
        if not home.is_absolute() or folder != path.name or not wanted(home):
            continue
        target = home / folder
        try:
            if not _was_deleted(home, header):  # the arena goes with its capture
                make_private_directory(target)
                _copy_used(fd, header, target / "arena")
                saved.append(target)
        except OSError:
            continue  # it stays where it is until its capture can be written to
        path.unlink()
    return saved


def salvage(capture: Path | None = None) -> list[Path]:
    """Brings in the arenas of dead processes (of one capture, or of all) and returns the folders
    they went to.
    """
    return _bring_in(lambda home: capture is None or home.resolve() == capture.resolve())


def salvage_below(directory: Path) -> list[Path]:
    """The same for all captures right below a directory."""
    return _bring_in(lambda home: home.resolve().parent == directory.resolve())


def salvage_matching(pattern: str) -> list[Path]:
    """The same for captures whose path matches a glob."""
    whole = os.path.abspath(pattern)
    return _bring_in(lambda home: home.match(whole))


def salvage_for_all(capture: Path | None = None) -> list[Path]:
    """As root, for an epilog: every user's arenas, each brought in with that user's rights, because
    the paths to write to are what the user's process says they are.
    """
    saved = salvage(capture)
    for directory in sorted(SHM_DIR.glob("ncclscope-*")):
        uid = directory.name.removeprefix("ncclscope-")
        if uid.isdecimal() and int(uid) and not directory.is_symlink():
            saved += _salvage_as(int(uid), directory.stat().st_gid, capture)
    return saved


def _salvage_as(uid: int, gid: int, capture: Path | None) -> list[Path]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            os.write(writing, b"".join(os.fsencode(path) + b"\0" for path in salvage(capture)))
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answers:
        saved = answers.read().split(b"\0")[:-1]
    os.waitpid(child, 0)
    return [Path(os.fsdecode(path)) for path in saved]
