"""Opens a capture's model: loads the saved one while it is current, else has a new one made."""

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ncclscope.capture.liveness import ENDED, FATES, life_in
from ncclscope.capture.reader import is_dataset
from ncclscope.errors import NcclscopeError
from ncclscope.humanize import plural
from ncclscope.model.completeness import SIMULATION
from ncclscope.model.model import Model, Progress
from ncclscope.model.rows import ProcessRow, list_processes
from ncclscope.model.store.fingerprint import fingerprint
from ncclscope.model.store.saved_model import load_current

if TYPE_CHECKING:
    from ncclscope.model.engine import Engines

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def open_model(
    capture: Path, progress: Progress | None = None, engine_of: "Engines | None" = None
) -> Model:
    """The model of a capture: the saved one while it is current, else a new one. `engine_of`: what
    makes it, unless this machine does.
    """
    try:
        try:
            return _open(capture, progress, engine_of, keep=True)
        except OSError as error:
            # Who filled the disk with a capture wants to look at it. A cluster has no TMPDIR that
            # all its hosts see.
            if engine_of is not None or error.errno not in _NO_ROOM:
                raise
            return _open(capture, progress, engine_of, keep=False)
    except OSError as error:
        message = f"cannot make the model of {capture}: {error.strerror or error}"
        raise NcclscopeError(message, "It is made in the capture, or else in TMPDIR") from None


def _open(
    capture: Path, progress: Progress | None, engine_of: "Engines | None", keep: bool
) -> Model:
    """The same. Without `keep` a new one is made in TMPDIR, for this command alone."""
    mark = fingerprint(capture)
    model = load_current(capture, mark)
    if is_dataset(capture):
        return model or _read_dataset(capture, mark, progress, keep)
    return _with_fates(model or _build(capture, mark, progress, engine_of, keep))


# A saved model needs neither duckdb, which reads datasets, nor what decodes and joins processes.
def _read_dataset(capture: Path, mark: str, progress: Progress | None, keep: bool) -> Model:
    from ncclscope.model.store.parquet_dataset import read_dataset

    return read_dataset(capture, mark, progress, keep)


def _build(
    capture: Path, mark: str, progress: Progress | None, engine_of: "Engines | None", keep: bool
) -> Model:
    from ncclscope.model.decode_and_join import build
    from ncclscope.model.engine import here

    if engine_of is not None and not os.access(capture, os.W_OK) and "TMPDIR" not in os.environ:
        message = (
            f"cannot have a cluster make the model of {capture}: this user may not write there"
        )
        raise NcclscopeError(
            message, "Set TMPDIR to a directory that workers see, or leave --on out"
        )
    return build(capture, mark, progress, engine_of or here, keep)


def _with_fates(model: Model) -> Model:
    """The model with a note of processes that were killed, still run, or are silent.

    Asked each time that a model is opened: a saved one does not notice that processes die. A
    dataset keeps the note of its capture.
    """
    by_fate: dict[str, list[ProcessRow]] = {}
    for row in model.processes:
        life = ENDED if row.ended else life_in(model.path / row.folder)
        if life != ENDED:
            by_fate.setdefault(FATES[life], []).append(row)
    if not by_fate:
        return model
    fates = [
        f"{plural(len(rows), 'process', 'processes')} {fate}: {list_processes(rows)}"
        for fate, rows in sorted(by_fate.items())
    ]
    notes = model.completeness.notes
    first = 1 if notes[:1] == [SIMULATION] else 0
    completeness = replace(model.completeness, notes=[*notes[:first], *fates, *notes[first:]])
    return replace(model, completeness=completeness)
