"""What is deleted of a history: jobs by number and age, and what killed writers left."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from ncclscope.history.reader import job_names
from ncclscope.history.tables import JOBS, TABLES
from ncclscope.history.writer import COLLECTED, SUFFIX, JobName, delete_job
from ncclscope.private_directory import UNFINISHED

_LEFTOVER_S = 24 * 3600.0  # no writer takes this long


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was deleted, or would be."""

    jobs: tuple[JobName, ...]
    leftovers: tuple[Path, ...]
    bytes: int


def prune(
    directory: Path, keep: int | None, older_than_s: float | None, dry_run: bool = False
) -> Pruned:
    """Deletes all but the last `keep` jobs, jobs that began longer ago, and leftovers."""
    chosen = chosen_jobs(job_names(directory), keep, older_than_s)
    leftovers = _leftovers(directory)
    freed = 0
    for path in leftovers:
        freed += path.stat().st_size
        if not dry_run:
            path.unlink(missing_ok=True)
    for name in chosen:
        freed += _size(directory, name) if dry_run else delete_job(directory, str(name))
    if chosen and not dry_run:
        forget_collected(directory)
    return Pruned(chosen, leftovers, freed)


def forget_collected(directory: Path) -> None:
    """Deletes the files with rows of many jobs, some of which are gone: readers make them again."""
    for path in (directory / COLLECTED).glob(f"*{SUFFIX}"):
        path.unlink(missing_ok=True)


def chosen_jobs(
    names: Sequence[JobName], keep: int | None, older_than_s: float | None
) -> tuple[JobName, ...]:
    """The jobs to delete of these, which are in the order of their starts."""
    chosen = set(names[: max(len(names) - keep, 0)] if keep is not None else ())
    if older_than_s is not None:
        oldest = datetime.fromtimestamp(time.time() - older_than_s, timezone.utc)
        chosen |= {name for name in names if name.start < f"{oldest:%Y%m%dT%H%M%SZ}"}
    return tuple(sorted(chosen))


def is_leftover(modified_s: float, now_s: float) -> bool:
    """Whether a file of a job that is not finished is too old to belong to a running writer."""
    return modified_s < now_s - _LEFTOVER_S


def _size(directory: Path, name: JobName) -> int:
    paths = [directory / table / f"{name}{SUFFIX}" for table in TABLES]
    return sum(path.stat().st_size for path in paths if path.exists())


def _leftovers(directory: Path) -> tuple[Path, ...]:
    """Old files that were never renamed, and old tables whose job was never finished."""
    files = [path for table in TABLES for path in (directory / table).glob("*")]
    files += (directory / COLLECTED).glob(f"{UNFINISHED}*")
    now_s = time.time()
    chosen = []
    for path in dict.fromkeys(files):
        unfinished = path.name.startswith(UNFINISHED) or (
            path.suffix == SUFFIX and not (directory / JOBS / path.name).exists()
        )
        if unfinished and path.is_file() and is_leftover(path.stat().st_mtime, now_s):
            chosen.append(path)
    return tuple(chosen)
