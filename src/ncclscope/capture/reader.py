"""Captures: the directories that runs leave behind, with one folder per process."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from ncclscope.capture.housekeeping import (
    has_process_folders,
    heartbeat,
    is_process_folder,
    process_folders,
)
from ncclscope.capture.process import Process, open_process
from ncclscope.capture.salvage import salvage, salvage_below, salvage_matching
from ncclscope.errors import FormatError, UsageError
from ncclscope.humanize import plural
from ncclscope.regular_files import open_binary

DATASET_FILE = "schema.json"
_REASONS_NAMED = 2
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class RawCapture:
    """All processes of one run that could be read, and why others could not."""

    path: Path
    processes: tuple[Process, ...]
    unreadable: tuple[str, ...]


def is_dataset(path: Path) -> bool:
    """Whether a directory is Parquet of `export` or `import`, which opens like a capture."""
    return (path / DATASET_FILE).is_file() and (path / "operations").is_dir()


def is_capture(path: Path) -> bool:
    """Whether any process left files below that directory, or it is a dataset."""
    return path.is_dir() and (is_dataset(path) or has_process_folders(path))


def _last_written(capture: Path) -> float:
    """When the job wrote there last. The directory's own time is not that: readers write there."""
    times = [capture.stat().st_mtime] if is_dataset(capture) else []
    for folder in process_folders(capture):
        beat = heartbeat(folder)  # copies of a capture have it as well, and other file times
        times.append(beat[0] if beat else folder.stat().st_mtime)
    return max(times, default=0.0)


def find_captures(below: Path) -> list[Path]:
    """Captures right below a directory, newest last."""
    captures = []
    for entry in below.iterdir():
        with suppress(OSError):  # another user's directory, or one that went away
            if is_capture(entry):
                captures.append((_last_written(entry), entry))
    return [entry for _, entry in sorted(captures)]


def newest_capture(below: Path) -> Path:
    """The newest capture right below a directory."""
    captures = find_captures(below)
    if not captures:
        raise UsageError(
            f"no capture below {below}",
            "Record one with `ncclscope run -- COMMAND`, or name its directory",
        )
    return captures[-1]


def resolve_capture(name: str | None) -> Path:
    """The capture that a user means by a directory, a glob, or nothing at all.

    Salvages first: what dead processes left in shared memory may be all there is.
    """
    if name is None:
        salvage_below(Path.cwd())
        return newest_capture(Path.cwd())
    path = Path(name)
    salvage(path)
    if not path.exists():
        salvage_matching(name)
        matches = sorted(
            (Path(match) for match in glob(name)), key=lambda match: match.stat().st_mtime
        )
        if not matches:
            raise UsageError(
                f"cannot open {name}: no such directory",
                "Name the directory that `ncclscope run` printed; it is made with the first NCCL "
                "communicator",
            )
        path = matches[-1]
    if is_process_folder(path):
        return path.parent
    if not is_capture(path):
        raise _no_capture(path)
    return path


def _no_capture(path: Path) -> UsageError:
    """Why something that exists cannot be opened, and how to go on."""
    if path.is_file():
        with open_binary(path, follow=True) as file:
            is_archive = file.read(2) == _GZIP and ".tar" in "".join(path.suffixes)
        if is_archive:
            message = f"cannot open {path}: it is an archive"
            return UsageError(message, f"Unpack it: tar xzf {path}, and open the directory in it")
    elif path.is_dir() and (below := find_captures(path)):
        message = f"cannot open {path}: it is no capture, it holds {plural(len(below), 'capture')}"
        return UsageError(message, f"Name one of them; the newest is {below[-1]}")
    elif path.is_dir() and not any(map(Path.is_file, path.iterdir())):
        message = f"cannot open {path}: no process recorded anything there"
        hint = "No NCCL communicator was created, or its NCCL did not load the plugin"
        return UsageError(message, hint)
    what = "no process recorded anything there" if path.is_dir() else "it is no capture"
    hint = f"If another tool wrote it, `ncclscope import {path} -o DIR` may read it"
    return UsageError(f"cannot open {path}: {what}", hint)


def none_readable(path: Path, reasons: Sequence[str]) -> FormatError:
    """The error of a capture of which no process can be read; names the first reasons."""
    # Their own hints speak of the other processes.
    some = "; ".join(reason.partition(". ")[0] for reason in reasons[:_REASONS_NAMED])
    more = len(reasons) - _REASONS_NAMED
    rest = f"; and {more:,} more" if more > 0 else ""
    message = f"cannot read any process of {path}: {some}{rest}"
    hint = "Copy it again if it is a copy, or use the release that recorded it"
    return FormatError(message, hint)


def open_capture(path: Path) -> RawCapture:
    """All processes below `path`; those that cannot be read are named, not fatal."""
    processes: list[Process] = []
    unreadable: list[str] = []
    for folder in process_folders(path):
        try:
            processes.append(open_process(folder))
        except FormatError as error:
            unreadable.append(str(error))
    return RawCapture(path, tuple(processes), tuple(unreadable))
