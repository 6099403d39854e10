"""Captures as things that take room: how large, whose, from when, and whether still being written.

Standard library only: housekeeping runs on login nodes and in epilogs.
"""

import os
import re
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ncclscope.capture.header import Header, launcher_rank, parse_header
from ncclscope.errors import FormatError, UsageError
from ncclscope.launchers import JOB_VARIABLES, RECORDED

SILENCE_S = 10.0  # a process that has not been heard of for longer does not run
_OF_READERS = ("model", ".model-", "timeline")  # folders in a capture that reading it makes
_SAMPLES = b'{"ncclscope":"system"'  # how a file of a sampler begins
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
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
    running: int  # processes heard of within the last seconds
    ended: int  # processes that said goodbye

    @property
    def state(self) -> str:
        """running, ended, or killed: ended without a word."""
        if self.running:
            return "running"
        return "ended" if self.ended == self.processes else "killed"


def _header(path: Path) -> Header | None:
    try:
        with path.open("rb") as file:
            return parse_header(file.read(1 << 16), path)
    except (OSError, FormatError):
        return None


def heartbeat(folder: Path) -> tuple[float, bool] | None:
    """When a process wrote its live page last, and whether that was its goodbye."""
    header = _header(folder / "live")
    if header is None:
        return None
    with (folder / "live").open("rb") as file:
        file.seek(header.header_bytes)
        page = file.read(64)
    if len(page) < 64:
        return None
    return int.from_bytes(page[24:32], "little") / 1e9, bool(page[57])


def is_running(folder: Path) -> bool:
    """Whether a process was heard of within the last seconds, and has not said goodbye."""
    beat = heartbeat(folder)
    return beat is not None and not beat[1] and time.time() - beat[0] < SILENCE_S


def header_in(folder: Path) -> Header | None:
    """The head of a process's files; None where they cannot be read."""
    return _header(folder / "meta") or _header(folder / "arena")


def identity_of(folder: Path) -> dict[str, str]:
    """What a process said about itself; nothing where its files cannot be read."""
    header = header_in(folder)
    return header.identity if header else {}


def _size(folder: Path) -> tuple[int, float]:
    """Bytes on disk of everything below, and when the job wrote last: not what readers keep."""
    total, newest = 0, 0.0
    kept = tuple(os.path.join(folder, name) for name in _OF_READERS)
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


def is_process_folder(folder: Path) -> bool:
    """Whether a process wrote there; PermissionError where that is nobody's business here."""
    names = ("meta", "arena", "log.000000")
    return folder.is_dir() and any((folder / name).exists() for name in names)


def process_folders(capture: Path) -> list[Path]:
    """Folders below a capture that a process wrote."""
    found = []
    for entry in sorted(capture.iterdir()):
        # Somebody else's capture, in a directory of captures: those of a capture have one owner.
        with suppress(PermissionError):
            found += [entry] if is_process_folder(entry) else []
    return found


def _has_samples(capture: Path) -> bool:
    """Whether a sampler wrote here, as it does for jobs that never come to NCCL, too."""
    for path in capture.glob("system.*.jsonl"):
        try:
            with path.open("rb") as file:
                if path.is_file() and file.read(len(_SAMPLES)) == _SAMPLES:
                    return True
        except OSError:
            continue
    return False


def describe(capture: Path) -> CaptureInfo | None:
    """What a directory is as a capture; None when it is none."""
    identities = []
    running = ended = 0
    for folder in process_folders(capture):
        identities.append(identity_of(folder))
        beat = heartbeat(folder)
        ended += beat is not None and beat[1]
        running += is_running(folder)
    if not identities and not _has_samples(capture):
        return None
    size, newest = _size(capture)
    if not identities:  # nobody but the sampler can be heard of
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


def captures_below(directory: Path) -> list[CaptureInfo]:
    """Captures right below a directory, or that directory itself, oldest first."""
    if not directory.is_dir():
        raise UsageError(
            f"cannot list {directory}: no such directory", "Name a directory of captures"
        )
    itself = describe(directory)
    if itself:
        return [itself]
    found = []
    for entry in sorted(directory.iterdir()):
        with suppress(PermissionError):  # other users' captures are none of ours
            info = describe(entry) if entry.is_dir() else None
            found += [info] if info else []
    return sorted(found, key=lambda info: info.newest)


def parse_age(text: str) -> float:
    """Seconds in 30m, 12h, 7d, 2w."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text)
    if not match:
        raise UsageError(f"{text} is no age", "Give a number and a unit: 30m, 12h, 7d, 2w")
    return float(match[1]) * _SECONDS[match[2]]


def parse_bytes(text: str) -> int:
    """Bytes in 500M, 20G."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)B?", text.upper())
    if not match:
        raise UsageError(f"{text} is no size", "Give a number and a unit: 500M, 20G")
    return int(float(match[1]) * _UNITS.get(match[2], 1))


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


def delete(capture: CaptureInfo) -> None:
    """Removes a capture; links in it are removed, not followed."""
    shutil.rmtree(capture.path)
