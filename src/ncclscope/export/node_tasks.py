"""Tasks that write the operations of a dataset on the workers of a cluster, each those of a node.

A task that is repeated writes the same files again, each aside until it is whole. Where a worker
does not see the folder, because it is on a disk of the command's own machine, the command writes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ncclscope.analysis.report_stage import ModelOf, Work
from ncclscope.analysis.selection import Selection
from ncclscope.export.parquet_files import FolderRows, has_pyarrow, write_folders
from ncclscope.model.late_files import wait_for_size, waiting_for_late_files
from ncclscope.model.model import PERIODIC, Model, Progress
from ncclscope.model.periodic_steps import with_periodic_steps
from ncclscope.model.store.dataset_layout import remove_unfinished


@dataclass(frozen=True, slots=True)
class Written:
    """What a task wrote. `sizes`: bytes of its files, by path."""

    rows: int
    sizes: dict[str, int]


@dataclass(frozen=True, slots=True)
class WriteNode:
    """Writes the files of a node; returns None where the dataset's folder is not seen."""

    model_of: ModelOf
    selection: Selection
    dataset: Path
    with_steps: bool  # by the period of calls, which the saved model does not have

    def __call__(self, folder: FolderRows) -> Written | None:
        if not self.dataset.is_dir():
            return None
        model = self.model_of()
        if self.with_steps:
            model = with_periodic_steps(model, _processes(model, folder))
        rows = write_folders(model, self.selection, self.dataset, [folder], has_pyarrow())
        files = (self.dataset / folder.folder).glob("*.parquet")
        return Written(rows, {str(file): file.stat().st_size for file in files})


def _processes(model: Model, folder: FolderRows) -> list[int]:
    """The processes of rows of operations."""
    column = model.tables["operations"]["process"]
    own = [np.unique(column[first:last]) for first, last in folder.parts]
    return np.unique(np.concatenate(own)).tolist() if own else []


def write_on_workers(
    work: Work,
    model: Model,
    selection: Selection,
    dataset: Path,
    folders: Sequence[FolderRows],
    progress: Progress | None,
) -> tuple[int, list[FolderRows]]:
    """Writes the selected operations; returns how many, and the folders that are left."""
    origins = model.tables["steps"]["origin"]
    with_steps = bool(len(origins) and origins[0] == PERIODIC)
    do = WriteNode(work.model_of, selection, dataset, with_steps)
    count, left = 0, []
    with waiting_for_late_files():
        for folder, written in zip(folders, work.engine.map(do, folders, progress), strict=True):
            if written is None:
                left.append(folder)
                continue
            count += written.rows
            for path, size_bytes in written.sizes.items():
                wait_for_size(Path(path), size_bytes)
            remove_unfinished(dataset / folder.folder)  # of a worker that died
    return count, left
