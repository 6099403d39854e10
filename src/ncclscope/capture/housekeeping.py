"""Captures as directories: their process folders, size, owner, age, and when silence means the end.

Standard library only: housekeeping runs on login nodes and in epilogs.
"""

import errno
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ncclscope.byte_sizes import size_in_bytes
from ncclscope.capture import layout
from ncclscope.capture.header import LARGEST_HEADER_BYTES, Header, launcher_rank, parse_header
from ncclscope.capture.process_table import GONE, seen_here
from ncclscope.errors import FormatError, UsageError
from ncclscope.launchers import JOB_VARIABLES, RECORDED
from ncclscope.regular_files import open_binary

DECODED_MANIFEST = "decoded.json"  # of a process: its decoded files are whole
_LONGEST_FOLDER = 200  # bytes; a host's name, two numbers and dots have less
SILENCE_S = 10.0  # a process that has not written its live page for longer does not run
_KEPT_BY_READERS = ("model", ".model-", "timeline")  # folders that readers make in a capture
_SAMPLES = b'{"ncclscope":"system"'  # how a file of a sampler begins
_LIVE = layout.slot_struct("Live", "realtime_ns", "phase")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@dataclass(frozen=True, slots=True)
class CaptureInfo:
    """One capture directory."""

    path: Path
    bytes: int  # on disk
    newest: float  # wall-clock time of the last write
    job: str
    processes: int
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    modes: tuple[str, ...]
    running: int  # processes that have not ended, as far as one can tell
    ended: int  # processes that exited by themselves

    @property
    def state(self) -> str:
        """running, ended, or ended abruptly: killed, or left by _exit."""
        if self.running:
            return "running"
        return "ended" if self.ended == self.processes else "ended abruptly"


def _header(path: Path) -> Header | None:
    try:
        with open_binary(path) as file:
            return parse_header(file.read(LARGEST_HEADER_BYTES), path)
    except (OSError, FormatError):
        return None


def heartbeat(folder: Path) -> tuple[float, bool] | None:
    """When a process wrote its live page last, in s since 1970, and whether it has ended."""
    header = _header(folder / "live")
    if header is None:
        return None
    try:
        with open_binary(folder / "live") as file:
            file.seek(header.header_bytes)
            page = file.read(layout.SLOT_BYTES)
    except OSError:  # it went away meanwhile
        return None
    if len(page) < layout.SLOT_BYTES:
        return None
    realtime_ns, phase = _LIVE.unpack_from(page)
    return realtime_ns / 1e9, bool(phase)


def is_running(folder: Path, careful: bool = False) -> bool:
    """Whether a process has not ended. Of one on this host the process table tells: the job may be
    stopped, or a clock set. Others wrote their live page within the last seconds.

    The file's time counts where the page cannot be read, as that of a newer release. If `careful`,
    it counts as well: `prune` must not delete what is being written, whatever that host's clock
    says.
    """
    beat = heartbeat(folder)
    if beat and beat[1]:
        return False
    header = header_in(folder)
    here = seen_here(header) if header else None
    if here is not None:
        return here != GONE
    written_s = beat[0] if beat else 0.0
    if careful or not beat:
        with suppress(OSError):
            written_s = max(written_s, (folder / "live").stat().st_mtime)
    return time.time() - written_s < SILENCE_S


def header_in(folder: Path) -> Header | None:
    """The header of a process's files; None where they cannot be read."""
    return _header(folder / "meta") or _header(folder / "arena")


def identity_of(folder: Path) -> dict[str, str]:
    """The identity in a process's files; empty where they cannot be read."""
    header = header_in(folder)
    return header.identity if header else {}


def _size(folder: Path) -> tuple[int, float]:
    """Bytes on disk of everything below, and when the job wrote last; readers' files do not count
    for that.
    """
    total, newest = 0, 0.0
    kept = tuple(os.path.join(folder, name) for name in _KEPT_BY_READERS)
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                info = os.lstat(os.path.join(directory, name))
            except OSError:
                continue
            total += info.st_blocks * 512
            if not directory.startswith(kept):
                newest = max(newest, info.st_mtime)
    return total, newest


def is_process_folder(folder: Path | int) -> bool:
    """Whether a process left files there that can be read: metadata, an arena, or a log, of which
    rotation may have taken the first segments. PermissionError where this user may not look.
    `folder`: its path, or a descriptor.
    """
    try:
        names = os.listdir(folder)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return False
        raise
    return any(_is_of_process(folder, name) for name in names)


def _is_of_process(folder: Path | int, name: str) -> bool:
    """Whether a process wrote this file. A link to nowhere is no metadata."""
    is_log = name.startswith("log.")
    if not is_log and name not in ("meta", "arena"):
        return False
    try:
        if isinstance(folder, int):
            os.stat(name, dir_fd=folder)
        else:
            os.stat(os.path.join(folder, name))
    except FileNotFoundError:
        return is_log
    return True


def process_folders(capture: Path) -> list[Path]:
    """Folders of processes right below a capture, by name; those of other users are left out."""
    return list(_process_folders(capture))


def is_recorders_name(name: str) -> bool:
    """Whether a recorder may have named a folder so: it is text, and short enough for others to
    name files by it. Other users may put folders into a capture that all may write to.
    """
    try:
        return len(name.encode()) <= _LONGEST_FOLDER
    except UnicodeEncodeError:
        return False


def has_process_folders(capture: Path) -> bool:
    """Whether there is any: of ten thousand, one is looked at."""
    return any(True for _ in _process_folders(capture))


def _process_folders(capture: Path) -> Iterator[Path]:
    for name in sorted(os.listdir(capture)):
        # A capture has one owner, but this may be a directory of captures.
        with suppress(PermissionError):
            if is_process_folder(capture / name):
                yield capture / name


def folders_without_log(capture: Path) -> list[Path]:
    """Processes with decoded files only: `decode --remove-raw` removed their logs."""
    # Looked for first, because most have none, and there may be ten thousand.
    decoded = (
        capture / name
        for name in os.listdir(capture)
        if os.path.exists(f"{capture}/{name}/{DECODED_MANIFEST}")
    )
    found = []
    for folder in decoded:
        with suppress(PermissionError):
            if is_process_folder(folder) and not any(folder.glob("log.*")):
                found.append(folder)
    return found


def _has_samples(capture: Path) -> bool:
    """Whether a sampler wrote here; it does so for jobs that never use NCCL, too."""
    for path in capture.glob("system.*.jsonl"):
        try:
            with open_binary(path) as file:
                if file.read(len(_SAMPLES)) == _SAMPLES:
                    return True
        except OSError:
            continue
    return False


def describe(capture: Path) -> CaptureInfo | None:
    """A directory as a capture; None when it is none."""
    identities = []
    running = ended = 0
    for folder in process_folders(capture):
        identities.append(identity_of(folder))
        beat = heartbeat(folder)
        ended += beat is not None and beat[1]
        running += is_running(folder, careful=True)
    if not identities and not _has_samples(capture):
        return None
    size, newest = _size(capture)
    if not identities:  # only the sampler writes
        running = int(time.time() - newest < SILENCE_S)
    jobs = [i.get(RECORDED + name, "") for i in identities for name in JOB_VARIABLES]
    ranks = {launcher_rank(identity) for identity in identities}
    return CaptureInfo(
        path=capture,
        bytes=size,
        newest=newest,
        job=next((job for job in jobs if job and job != "none"), ""),
        processes=len(identities),
        ranks=tuple(sorted(rank for rank in ranks if rank is not None)),
        hosts=tuple(sorted({i["host"] for i in identities if "host" in i})),
        modes=tuple(sorted({i["mode"] for i in identities if "mode" in i})),
        running=running,
        ended=ended,
    )


def captures_below(directory: Path, follow_links: bool = True) -> list[CaptureInfo]:
    """Captures right below a directory, or that directory itself, oldest first. Without
    `follow_links` those are left out that are in other places, and only linked to.
    """
    if not directory.is_dir():
        raise UsageError(
            f"cannot list {directory}: no such directory", "Name a directory of captures"
        )
    itself = describe(directory)
    if itself:
        return [itself]
    captures = []
    for entry in sorted(directory.iterdir()):
        with suppress(OSError):  # another user's capture, or one that went away
            is_here = follow_links or not entry.is_symlink()
            info = describe(entry) if is_here and entry.is_dir() else None
            captures += [info] if info else []
    return sorted(captures, key=lambda info: info.newest)


def parse_age(text: str) -> float:
    """Seconds in 30m, 12h, 7d, 2w."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text)
    if not match:
        raise UsageError(f"{text} is no age", "Give a number and a unit: 30m, 12h, 7d, 2w")
    return float(match[1]) * _SECONDS[match[2]]


def parse_bytes(text: str) -> int:
    """Bytes in 500M, 20G."""
    size_bytes = size_in_bytes(text)
    if size_bytes is None:
        raise UsageError(f"{text} is no size", "Give a number and a unit: 500M, 20G")
    return size_bytes


def choose_for_deletion(
    captures: Iterable[CaptureInfo], older_than_s: float | None, keep_bytes: int | None
) -> list[CaptureInfo]:
    """Captures to delete: too old, or the oldest until the rest fits. Running ones never."""
    kept = [info for info in captures if not info.running]
    chosen = []
    if older_than_s is not None:
        chosen = [info for info in kept if time.time() - info.newest > older_than_s]
    if keep_bytes is not None:
        rest = [info for info in kept if info not in chosen]
        size = sum(info.bytes for info in rest)
        while rest and size > keep_bytes:
            size -= rest[0].bytes
            chosen.append(rest.pop(0))
    return chosen
