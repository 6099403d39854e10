"""What a saved model was made of, as one hash: it is current while the capture's files are."""

import hashlib
import os
from collections.abc import Iterator

from ncclscope._version import __version__
from ncclscope.model.schema import SCHEMA_VERSION
from ncclscope.model.store.saved_model import FOLDER

# Rises when what is saved changes; models of other versions are made again.
_VERSION = 10
_MADE_FOLDERS = (FOLDER, "timeline")  # made of the capture, by the saved model and by `timeline`


def fingerprint(capture: str | os.PathLike[str]) -> str:
    """A hash of the names, sizes and times of the capture's files."""
    digest = hashlib.sha256(f"{__version__} {SCHEMA_VERSION} {_VERSION}".encode())
    folders = [entry for entry in os.scandir(capture) if entry.is_dir()]
    for folder in sorted(folders, key=lambda entry: entry.name):
        if folder.name in _MADE_FOLDERS or folder.name.startswith(f".{FOLDER}-"):
            continue
        for file in _files_in(folder.path):
            try:
                state = file.stat(follow_symlinks=False)
            except FileNotFoundError:  # rotated away right now
                continue
            name = os.fsencode(f"{folder.name}/{file.name}")  # another user's may be no UTF-8
            digest.update(name + f" {state.st_size} {state.st_mtime_ns}".encode())
    return digest.hexdigest()


def _files_in(folder: str) -> Iterator[os.DirEntry[str]]:
    """What is in a folder, in order, and in a dataset's folders of nodes."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.name == "live":  # rewritten every second, and says nothing new about the past
            continue
        yield entry
        if "=" in entry.name and entry.is_dir(follow_symlinks=False):
            yield from sorted(os.scandir(entry.path), key=lambda file: file.name)
