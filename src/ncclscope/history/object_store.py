"""A history in an object store, under the names that it has in a directory (writer.py).

An object appears whole or not at all, and never changes. So a job is added by putting its objects,
that of `jobs` last, and readers keep a copy of the history on this machine: they fetch what is new
and delete what is gone. fsspec knows the stores: s3://, gs://, abfs:// …
"""

import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.history.pruning import Pruned, chosen_jobs, forget_collected, is_leftover
from ncclscope.history.reader import latest_names
from ncclscope.history.tables import JOBS, TABLES, JobSums
from ncclscope.history.writer import SUFFIX, JobName, earlier_writings, write_job
from ncclscope.private_directory import make_private_directory, new_private_file

_AT_ONCE = 64  # objects that are asked for together; each is some 10 KB
_Sizes = dict[str, int]  # bytes by name of the object, without its folder


def is_url(text: str) -> bool:
    """Whether a history's name is that of an object store."""
    return "://" in text


# ---- what a command does with a history ----
def copy_here(url: str) -> Path:
    """A directory with what the store has now, for readers."""
    with _opened(url, "read") as store:
        objects = {table: store.objects(table) for table in TABLES}
        if not objects[JOBS]:
            message = f"there is no history in {url}"
            raise UsageError(message, f"Add a job: ncclscope history add {url} CAPTURE")
        directory = _cache_of(url)
        deleted = [_delete_others(directory / table, objects[table]) for table in TABLES]
        if any(deleted):
            forget_collected(directory)
        for table in TABLES:
            make_private_directory(directory / table)
            missing = objects[table].keys() - set(os.listdir(directory / table))
            store.fetch(table, sorted(missing), directory / table)
    return directory


def add_job(url: str, sums: JobSums) -> JobName:
    """Adds a job and returns its name; what was kept of the same capture before is deleted."""
    with (
        tempfile.TemporaryDirectory(prefix="ncclscope-") as scratch,
        _opened(url, "write") as store,
    ):
        name = write_job(Path(scratch), sums)
        for table in _jobs_last():
            file = Path(scratch) / table / f"{name}{SUFFIX}"
            if file.exists():
                store.put(file, table)
        for earlier in earlier_writings(store.objects(JOBS), name):
            store.delete_job(earlier)
    return name


def prune_objects(
    url: str, keep: int | None, older_than_s: float | None, dry_run: bool = False
) -> Pruned:
    """Deletes all but the last `keep` jobs, jobs that began longer ago, and what killed writers
    left.
    """
    with _opened(url, "write") as store:
        objects = {table: store.objects(table) for table in TABLES}
        chosen = chosen_jobs(latest_names(objects[JOBS]), keep, older_than_s)
        leftovers = [
            (table, name)
            for table in TABLES
            for name in objects[table]
            if name not in objects[JOBS] and is_leftover(store.modified_s(table, name), time.time())
        ]
        freed = sum(objects[table][name] for table, name in leftovers)
        freed += sum(objects[t].get(f"{name}{SUFFIX}", 0) for t in TABLES for name in chosen)
        if not dry_run:
            for table, name in leftovers:
                store.delete(table, name)
            for job in chosen:
                store.delete_job(f"{job}{SUFFIX}")
    return Pruned(chosen, tuple(Path(table, name) for table, name in leftovers), freed)


# ---- the store ----
class _Store:
    """The objects of a history. Raises what its library raises."""

    def __init__(self, url: str) -> None:
        import fsspec  # an extra: whoever has a store has it

        self._files, self._root = fsspec.core.url_to_fs(url.rstrip("/"))

    def objects(self, table: str) -> _Sizes:
        """What a table has now."""
        self._files.invalidate_cache()
        try:
            found: list[dict[str, Any]] = self._files.ls(f"{self._root}/{table}", detail=True)
        except FileNotFoundError:
            return {}
        names = {Path(one["name"]).name: int(one["size"] or 0) for one in found}
        return {name: size for name, size in names.items() if name.endswith(SUFFIX)}

    def fetch(self, table: str, names: list[str], directory: Path) -> None:
        """Copies objects into a directory; those that were deleted meanwhile are left out."""
        for first in range(0, len(names), _AT_ONCE):
            paths = [f"{self._root}/{table}/{name}" for name in names[first : first + _AT_ONCE]]
            for path, data in self._files.cat(paths, on_error="omit").items():
                with new_private_file(directory / Path(path).name) as file:
                    file.write(data)

    def put(self, file: Path, table: str) -> None:
        """Copies a file there, in one piece."""
        self._files.pipe_file(f"{self._root}/{table}/{file.name}", file.read_bytes())

    def delete(self, table: str, name: str) -> None:
        """Deletes an object, if it is there."""
        with suppress(FileNotFoundError):
            self._files.rm_file(f"{self._root}/{table}/{name}")

    def delete_job(self, name: str) -> None:
        """Deletes a job's objects, that of `jobs` first; `name` with its suffix."""
        for table in reversed(_jobs_last()):
            self.delete(table, name)

    def modified_s(self, table: str, name: str) -> float:
        """When an object was put; in seconds since 1970."""
        try:
            modified: float = self._files.modified(f"{self._root}/{table}/{name}").timestamp()
        except FileNotFoundError:
            return time.time()
        return modified


def _jobs_last() -> list[str]:
    return sorted(TABLES, key=lambda table: table == JOBS)


@contextmanager
def _opened(url: str, doing: str) -> Iterator[_Store]:
    """The store; what its library raises becomes one sentence."""
    try:
        yield _Store(url)
    except NcclscopeError:
        raise
    except ImportError as error:  # fsspec, or what it needs for this kind of store, which it names
        message = f"cannot {doing} {url}: {error}"
        raise NcclscopeError(message, "For s3://: pip install s3fs") from None
    except Exception as error:  # each kind of store has exceptions of its own
        cause = " ".join(str(error).split()) or type(error).__name__
        message = f"cannot {doing} {url}: {cause}"
        raise NcclscopeError(message, "Check the address and the credentials") from None


# ---- the copy ----
def _cache_of(url: str) -> Path:
    """Where the copy of a history is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    name = hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:16]
    directory = Path(base) / "ncclscope" / "history" / name
    try:
        make_private_directory(directory)
    except OSError as error:
        message = f"cannot keep a copy of {url} in {directory}: {error.strerror}"
        raise NcclscopeError(message, "Set XDG_CACHE_HOME to a directory of yours") from None
    return directory


def _delete_others(directory: Path, kept: _Sizes) -> int:
    """Deletes files whose objects are gone; returns how many."""
    gone = [path for path in directory.glob(f"*{SUFFIX}") if path.name not in kept]
    for path in gone:
        path.unlink(missing_ok=True)
    return len(gone)
