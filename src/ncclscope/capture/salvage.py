"""Shared memory that processes left behind: finding it, and bringing it into its capture.

A process holds a lock on its arena as long as it lives; the kernel drops it however the process
dies. An arena that is not locked is copied into its capture as the file `arena`, which readers
treat like the arena itself.
"""

import fcntl
import os
import select
import signal
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from ncclscope.capture import layout
from ncclscope.capture.header import LARGEST_HEADER_BYTES, Header, parse_header
from ncclscope.errors import FormatError, NewerFormatError
from ncclscope.private_directory import make_private_directory

SHM_DIR = Path("/dev/shm")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PARTIAL = "arena.partial"
_PATIENCE_S = 60.0  # for one user's arenas, as root
_LOCK_ATTEMPTS, _LOCK_PAUSE_S = 100, 0.01
_LARGEST_FRONT = _LARGEST_CHUNK = 64 << 20
_MOST_CHUNKS = 4096  # MAX_CHUNKS of native/src/arena.h
_DELETE = "Delete it, if you do not need it"
_IN_USE = (bytes([layout.KINDS["Block"]]), bytes([layout.KINDS["Tallies"]]))


def arena_dir(uid: int | None = None) -> Path:
    """Where a user's processes keep their arenas; by default this user's."""
    return Path(_own_arena_dir()) if uid is None else SHM_DIR / f"ncclscope-{uid}"


def _own_arena_dir() -> str:
    return f"{SHM_DIR}/ncclscope-{os.getuid()}"


def arena_of(folder: Path, identity: dict[str, str]) -> Path | None:
    """A process's arena: the salvaged copy in its folder, else the shared memory itself on its own
    host.
    """
    # Strings, not paths: there may be ten thousand folders.
    if os.path.exists(f"{folder}/arena"):
        return folder / "arena"
    path = f"{_own_arena_dir()}/{folder.name}"
    if identity.get("arena", path) != path or not os.path.exists(path):
        return None
    return Path(path) if identity.get("boot_id", boot_id()) == boot_id() else None


@cache
def boot_id() -> str:
    """Of this host since it was started; "" where it does not say."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _open_directory(path: Path, uid: int) -> int:
    """A descriptor of a user's directory that nobody else can have prepared; PermissionError with
    the reason where somebody else did.
    """
    try:
        fd = os.open(path, _DIRECTORY)
    except NotADirectoryError:
        raise PermissionError(f"{path} is no directory, or a link to one") from None
    info = os.fstat(fd)
    if info.st_uid == uid and not info.st_mode & 0o077:
        return fd
    os.close(fd)
    owner = f"belongs to user {info.st_uid}" if info.st_uid != uid else "is open to others"
    raise PermissionError(f"{path} {owner}")


def _open_arena(directory: int, name: str) -> int | None:
    """A descriptor of a regular file of this user. Links are not followed, FIFOs not waited for."""
    try:
        fd = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory
        )
    except OSError:
        return None
    info = os.fstat(fd)
    if stat.S_ISREG(info.st_mode) and info.st_uid == os.getuid():
        return fd
    os.close(fd)
    return None


def _lock(fd: int, header: Header) -> None:
    """Takes the lock of an arena; BlockingIOError while its process lives. Another process that
    looks for dead arenas may hold it for a moment.
    """
    for _ in range(_LOCK_ATTEMPTS):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not _is_gone(header):
                raise
        else:
            if os.fstat(fd).st_nlink:
                return
            break  # somebody else has brought it in meanwhile
        time.sleep(_LOCK_PAUSE_S)
    raise BlockingIOError


def _is_gone(header: Header) -> bool:
    """Whether a process of this host does not exist any more; False where that cannot be seen."""
    with suppress(OSError):
        namespace = str(os.stat("/proc/self/ns/pid").st_ino)
        same = header.identity.get("pid_namespace") == namespace
        return same and not Path(f"/proc/{header.pid}").exists()
    return False


def _check_sizes(header: Header, path: Path) -> None:
    """FormatError for an arena that no recorder makes: copying it could go on for ever."""
    chunk_bytes = header.chunk_slots * layout.SLOT_BYTES
    if (
        not 0 < header.chunks_offset <= _LARGEST_FRONT
        or not 0 < chunk_bytes <= _LARGEST_CHUNK
        or header.chunk_count > _MOST_CHUNKS
    ):
        raise FormatError(f"cannot read {path}: no recorder makes such sizes", _DELETE)


def _arena_header(fd: int, path: Path) -> tuple[Header, Path]:
    """The header of an arena, and the capture that it belongs to; FormatError for what this release
    cannot bring in.
    """
    data = os.pread(fd, LARGEST_HEADER_BYTES, 0)
    header = parse_header(data, path) if data.startswith(layout.MAGIC) else None
    if not header or header.file_kind != layout.FILE_ARENA:
        raise FormatError(f"cannot read {path}: it is no arena of a process", _DELETE)
    if header.major < layout.MAJOR:
        message = f"cannot read {path}: its format {header.major}.{header.minor} is older than this"
        raise FormatError(f"{message} release reads", "Use the release that recorded it")
    _check_sizes(header, path)
    home = Path(header.identity.get("capture", ""))
    folder = header.identity.get("folder")
    if not home.is_absolute() or not folder:
        raise FormatError(f"cannot read {path}: it names no capture", _DELETE)
    if folder != path.name:
        raise FormatError(f"cannot read {path}: it was renamed", f"Name it {folder} again")
    return header, home


def _is_left_behind(fd: int) -> bool:
    """Whether no process holds the lock of a file, nor has it just been created. The lock is taken;
    it goes with the descriptor.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return os.fstat(fd).st_size > 0 and os.fstat(fd).st_nlink > 0


def _dead_arenas(
    directory: int, wanted: Callable[[Path], bool], refused: list[str], name_all: bool
) -> Iterator[tuple[int, Header, Path]]:
    """Arenas of dead processes whose captures are wanted, locked while the caller uses them; with
    the capture. `refused` gets arenas of newer releases, whose capture is not known, and with
    `name_all` whatever else is there and cannot be read.
    """
    for name in sorted(os.listdir(directory)):
        fd = _open_arena(directory, name)
        if fd is None:
            if name_all:
                refused.append(f"{arena_dir() / name} is no regular file of this user")
            continue
        try:
            header, home = _arena_header(fd, arena_dir() / name)
            if wanted(home):
                _lock(fd, header)
                yield fd, header, home / name
        except BlockingIOError:
            continue  # alive
        except FormatError as error:
            is_newer = isinstance(error, NewerFormatError)
            if (is_newer or name_all) and _is_left_behind(fd):
                refused.append(f"{error}, or delete it" if is_newer else str(error))
        finally:
            os.close(fd)


def _copy_used(fd: int, header: Header, folder: Path) -> None:
    """Copies the front and the chunks in use; free chunks stay holes. Nothing that others put in
    the way is followed, opened or replaced.
    """
    chunk_bytes = header.chunk_slots * layout.SLOT_BYTES
    with _directory(folder) as directory:
        out = _create_file(directory, _PARTIAL, folder)
        try:
            os.ftruncate(out, header.chunks_offset + header.chunk_count * chunk_bytes)
            _copy_range(fd, out, 0, header.chunks_offset)
            for number in range(header.chunk_count):
                offset = header.chunks_offset + number * chunk_bytes
                if os.pread(fd, 1, offset) in _IN_USE:
                    _copy_range(fd, out, offset, chunk_bytes)
        finally:
            os.close(out)
        os.replace(_PARTIAL, "arena", src_dir_fd=directory, dst_dir_fd=directory)


@contextmanager
def _directory(path: Path) -> Iterator[int]:
    """A descriptor of a directory that is made where it does not exist; NotADirectoryError for a
    link.
    """
    make_private_directory(path)
    fd = os.open(path, _DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def _create_file(directory: int, name: str, path: Path) -> int:
    """A new file. PermissionError where the directory is another user's: what we create in our own
    belongs to its owner, also where a file system maps user ids.
    """
    owner = os.fstat(directory).st_uid
    if owner == os.geteuid():
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, 0o600, dir_fd=directory)
        if os.fstat(fd).st_uid == owner:
            return fd
        os.close(fd)
        os.unlink(name, dir_fd=directory)
    except FileExistsError:
        pass
    raise PermissionError(f"{path} belongs to user {owner}")


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


def _bring_in(
    wanted: Callable[[Path], bool], refused: list[str] | None = None, name_all: bool = False
) -> list[Path]:
    """Copies dead arenas to those captures that are wanted, and returns the folders. `refused` gets
    what was left alone because it is another user's or cannot be read.
    """
    saved: list[Path] = []
    refused = [] if refused is None else refused
    try:
        directory = _open_directory(arena_dir(), os.getuid())
    except PermissionError as error:
        refused.append(str(error))
        return saved
    except OSError:
        return saved
    try:
        for fd, header, target in _dead_arenas(directory, wanted, refused, name_all):
            try:
                if not _was_deleted(target.parent, header):  # the arena goes with its capture
                    _copy_used(fd, header, target)
                    saved.append(target)
            except OSError as error:  # it stays where it is until its capture can be written to
                if isinstance(error, (NotADirectoryError, PermissionError)):
                    refused.append(f"{target} is a link" if target.is_symlink() else str(error))
            else:
                with suppress(FileNotFoundError):
                    os.unlink(target.name, dir_fd=directory)
    finally:
        os.close(directory)
    return saved


def salvage(capture: Path | None = None, refused: list[str] | None = None) -> list[Path]:
    """Brings in the arenas of dead processes (of one capture, or of all) and returns the folders
    they went to. `refused` gets what was left alone: what is another user's, arenas of newer
    releases, and, where all captures are asked for, everything that cannot be read.
    """
    # realpath and not Path.resolve: that raises where links go round in a circle.
    return _bring_in(
        lambda home: capture is None or os.path.realpath(home) == os.path.realpath(capture),
        refused,
        name_all=capture is None,
    )


def salvage_below(directory: Path) -> list[Path]:
    """The same for all captures right below a directory."""
    place = os.path.realpath(directory)
    return _bring_in(lambda home: os.path.dirname(os.path.realpath(home)) == place)


def salvage_matching(pattern: str) -> list[Path]:
    """The same for captures whose path matches a glob."""
    whole = os.path.abspath(pattern)
    return _bring_in(lambda home: home.match(whole))


def salvage_for_all(capture: Path | None = None, refused: list[str] | None = None) -> list[Path]:
    """As root, for an epilog: every user's arenas, each brought in with that user's rights, because
    the paths to write to are what the user's process says they are.
    """
    refused = [] if refused is None else refused
    saved = salvage(capture, refused)
    for path in sorted(SHM_DIR.glob("ncclscope-*")):
        number = path.name.removeprefix("ncclscope-")
        if not number.isdecimal() or not int(number):
            continue
        try:
            directory = _open_directory(path, int(number))
        except OSError as error:
            refused.append(str(error))
            continue
        gid = os.fstat(directory).st_gid
        os.close(directory)
        saved += _salvage_as(int(number), gid, capture, refused)
    return saved


def _salvage_as(uid: int, gid: int, capture: Path | None, refused: list[str]) -> list[Path]:
    """In a process with the user's rights. The user may stop it, or lead it to a file system that
    hangs, so it has a minute.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            named: list[str] = []
            lines = [b"+" + os.fsencode(path) for path in salvage(capture, named)]
            lines += [b"-" + os.fsencode(text) for text in named]
            os.write(writing, b"".join(line + b"\0" for line in lines))
        os._exit(0)
    os.close(writing)
    answer = _read_for(reading, _PATIENCE_S)
    os.close(reading)
    if answer is None:
        os.kill(child, signal.SIGKILL)
        refused.append(f"{arena_dir(uid)} took longer than {_PATIENCE_S:.0f} s")
    os.waitpid(child, 0)
    lines = (answer or b"").split(b"\0")[:-1]
    refused += [os.fsdecode(line[1:]) for line in lines if line.startswith(b"-")]
    return [Path(os.fsdecode(line[1:])) for line in lines if line.startswith(b"+")]


def _read_for(fd: int, seconds: float) -> bytes | None:
    """All that comes through a pipe until it is closed; None: it was not in time."""
    end, data = time.monotonic() + seconds, b""
    while (left := end - time.monotonic()) > 0:
        if not select.select([fd], [], [], left)[0]:
            return None
        more = os.read(fd, 1 << 16)
        if not more:
            return data
        data += more
    return None
