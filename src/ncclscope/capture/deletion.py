"""Deletes what ncclscope wrote into a capture, and nothing else: `run -o .` makes a capture of a
directory that holds the user's own files.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path

from ncclscope.capture.housekeeping import is_process_folder

# Patterns of names. Of a process's folder:
_OF_PROCESS = (
    "meta", "tally", "live", "arena", "arena.partial", "context.jsonl", "log.[0-9]*", "new.*",
    "decoded.*",
)  # fmt: skip
# Of folders that readers keep in a capture: saved models, made ones, and the timeline's index.
_OF_READERS = {
    "model": ("manifest.json", "[a-z_]*.[a-z_]*"),
    ".model-*": ("manifest.json", "[a-z_]*.[a-z_]*"),
    "timeline": ("*.rows", "*.json", "*.mark", "new.*"),
}
# Of the capture's own directory: samples, requests, NCCL's log, a link to the plugin.
_OF_CAPTURE = ("system.*.jsonl", "control", "new.control.*", "debug.*", "plugin.so")
_SAVED_MODEL = "manifest.json"


def delete(capture: Path) -> list[Path]:
    """Deletes a capture. Returns what stays there because ncclscope did not write it. Links are
    never followed, and stay where other things of the user's do.
    """
    # By descriptors: root deletes captures of users, who may put a link in a folder's place
    # between the look at it and the deletion.
    with _opened(capture) as directory:
        left = _delete_within(capture, directory)
    if not left:
        with suppress(OSError):  # something stays in it
            capture.rmdir()
    return left


def _delete_within(capture: Path, directory: int) -> list[Path]:
    left: list[Path] = []
    links: list[str] = []
    for entry in list(os.scandir(directory)):
        path = capture / entry.name
        if entry.is_dir(follow_symlinks=False):
            left += _delete_folder(path, directory)
        elif _is_one_of(entry.name, _OF_CAPTURE):
            _unlink(path, directory)
        elif entry.is_symlink():
            links.append(entry.name)
        else:
            left.append(path)
    if left:
        return [*left, *(capture / name for name in links)]
    for name in links:
        _unlink(capture / name, directory)
    return left


def _delete_folder(folder: Path, above: int) -> list[Path]:
    """Deletes a folder of a capture, as far as ncclscope wrote it; what stays."""
    try:
        with _opened(folder.name, above) as directory:
            patterns = _patterns_of(folder.name, directory)
            left = _empty(folder, directory, patterns) if patterns else [folder]
    except (FileNotFoundError, NotADirectoryError):  # somebody removed it, or put a link there
        return [folder] if os.path.lexists(folder) else []
    if not left:
        with suppress(OSError):
            os.rmdir(folder.name, dir_fd=above)
    return left


@contextmanager
def _opened(path: Path | str, above: int | None = None) -> Iterator[int]:
    """A descriptor of a directory; NotADirectoryError for a link to one."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    directory = os.open(path, flags, dir_fd=above)
    try:
        yield directory
    finally:
        os.close(directory)


def _unlink(path: Path, directory: int) -> None:
    """Deletes a file of a directory; `path` is for messages."""
    try:
        os.unlink(path.name, dir_fd=directory)
    except FileNotFoundError:
        pass
    except OSError as error:
        error.filename = str(path)
        raise


def is_saved_model(folder: Path) -> bool:
    """Whether a folder holds a saved model, perhaps damaged, and nothing else. A directory `model`
    of the user's own, with weights in it, is none.
    """
    if not folder.is_dir() or folder.is_symlink():
        return False
    with _opened(folder) as directory:
        return _holds_model(directory)


def _holds_model(directory: int) -> bool:
    entries = list(os.scandir(directory))
    names = [entry.name for entry in entries]
    plain = all(
        not entry.is_dir(follow_symlinks=False) or _is_empty(entry.name, directory)
        for entry in entries
    )
    fits = all(_is_one_of(name, _OF_READERS["model"]) for name in names)
    return plain and fits and (not names or _SAVED_MODEL in names)


def _is_empty(name: str, above: int) -> bool:
    with _opened(name, above) as directory:
        return not os.listdir(directory)


def _patterns_of(name: str, directory: int) -> tuple[str, ...]:
    """Names that ncclscope gives to files in a folder of a capture; none: it is not ncclscope's."""
    if is_process_folder(directory):
        return _OF_PROCESS
    if name == "model" and not _holds_model(directory):
        return ()
    return next((names for one, names in _OF_READERS.items() if fnmatch(name, one)), ())


def _empty(folder: Path, directory: int, patterns: tuple[str, ...]) -> list[Path]:
    """Deletes the files of a folder that match; what stays."""
    left = []
    for entry in list(os.scandir(directory)):
        is_file = entry.is_symlink() or not entry.is_dir(follow_symlinks=False)
        if is_file and (entry.is_symlink() or _is_one_of(entry.name, patterns)):
            _unlink(folder / entry.name, directory)
        else:
            left.append(folder / entry.name)
    return left


def _is_one_of(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)
