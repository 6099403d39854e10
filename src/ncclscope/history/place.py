"""A history by its name: a directory, or the address of an object store."""

from pathlib import Path

from ncclscope.history.object_store import add_job, copy_here, is_url, prune_objects
from ncclscope.history.pruning import Pruned, prune
from ncclscope.history.tables import JobSums
from ncclscope.history.writer import JobName, write_job


def history_directory(place: str) -> Path:
    """The directory in which its jobs can be read."""
    return copy_here(place) if is_url(place) else Path(place)


def add_to_history(place: str, sums: JobSums) -> JobName:
    """Adds a job and returns its name."""
    return add_job(place, sums) if is_url(place) else write_job(Path(place), sums)


def prune_history(
    place: str, keep: int | None, older_than_s: float | None, dry_run: bool = False
) -> Pruned:
    """Deletes all but the last `keep` jobs, jobs that began longer ago, and leftovers."""
    if is_url(place):
        return prune_objects(place, keep, older_than_s, dry_run)
    return prune(Path(place), keep, older_than_s, dry_run)
