"""A history in an object store: what a directory gives, and objects whole or not there.

The store is fsspec's in memory, which is no simulation of a network; docs/measurements/scale.md has
a run against an S3 server.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import fsspec
import numpy as np
import pytest

from ncclscope.cli import main
from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.history import object_store
from ncclscope.history.place import add_to_history, history_directory, prune_history
from ncclscope.history.reader import History
from ncclscope.history.tables import COMMUNICATORS, HOSTS, JOBS, LINKS, HostRow, JobSums
from ncclscope.history.writer import write_job
from tests.support.history_jobs import fleet, made_job

URL = "memory://bucket/history"


def job(number: int) -> JobSums:
    return made_job(number, fleet(4), np.random.default_rng(number))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def store() -> Iterator[fsspec.AbstractFileSystem]:
    made = fsspec.filesystem("memory")
    yield made
    made.store.clear()


def labels() -> list[str]:
    return [job.row.label for job in History(history_directory(URL)).jobs]


def test_it_answers_as_a_directory_does(store: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    for number in range(8):
        add_to_history(URL, job(number))
        write_job(tmp_path / "directory", job(number))
    there, here = History(history_directory(URL)), History(tmp_path / "directory")
    assert [one.row for one in there.jobs] == [one.row for one in here.jobs]
    columns = [field.name for field in fields(HostRow)]
    rows = [{row[1:] for row in history.rows(HOSTS, columns)} for history in (there, here)]
    assert rows[0] == rows[1]


def test_what_is_new_is_fetched_and_what_is_gone_is_deleted(
    store: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        add_to_history(URL, job(number))
    assert labels() == ["job0", "job1", "job2"]
    fetched: dict[str, list[str]] = {}
    fetch = object_store._Store.fetch

    def noted(store: object_store._Store, table: str, names: list[str], directory: Path) -> None:
        fetched[table] = names
        fetch(store, table, names, directory)

    monkeypatch.setattr(object_store._Store, "fetch", noted)
    add_to_history(URL, job(3))
    assert len(prune_history(URL, 2, None).jobs) == 2
    assert labels() == ["job2", "job3"]
    assert len(fetched[JOBS]) == 1, "the others are here already"


def test_a_capture_that_is_added_again_replaces_what_was_kept(
    store: fsspec.AbstractFileSystem,
) -> None:
    first = add_to_history(URL, job(1))
    second = add_to_history(URL, job(1))
    assert first < second
    assert labels() == ["job1"]
    assert [Path(path).stem for path in store.find(f"{URL}/{HOSTS}")] == [str(second)]


def test_a_writer_that_is_killed_leaves_no_job(
    store: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_to_history(URL, job(1))
    put = object_store._Store.put

    def killed(store: object_store._Store, file: Path, table: str) -> None:
        if table == JOBS:
            raise KeyboardInterrupt
        put(store, file, table)

    with monkeypatch.context() as patch:
        patch.setattr(object_store._Store, "put", killed)
        with pytest.raises(KeyboardInterrupt):
            add_to_history(URL, job(2))
    assert labels() == ["job1"]
    assert len(store.find(f"{URL}/{HOSTS}")) == 2
    assert not prune_history(URL, 9, None).leftovers, "its writer may be at work"
    tomorrow = time.time() + 2 * 24 * 3600
    monkeypatch.setattr(object_store.time, "time", lambda: tomorrow)
    leftovers = prune_history(URL, 9, None, dry_run=True).leftovers
    assert {path.parts[0] for path in leftovers} == {HOSTS, COMMUNICATORS, LINKS}
    prune_history(URL, 9, None)
    assert len(store.find(f"{URL}/{HOSTS}")) == 1
    assert labels() == ["job1"]


def test_the_copy_is_private(store: fsspec.AbstractFileSystem, cache: Path) -> None:
    add_to_history(URL, job(1))
    directory = history_directory(URL)
    assert directory.is_relative_to(cache)
    assert {path.stat().st_mode & 0o77 for path in cache.rglob("*")} == {0}


def test_the_commands_take_an_address(
    store: fsspec.AbstractFileSystem, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        add_to_history(URL, job(number))
    assert main(["history", "list", URL]) == 0
    assert "job2" in capsys.readouterr().out
    assert main(["history", "prune", URL, "--keep", "1"]) == 0
    assert "2 jobs" in capsys.readouterr().out
    assert labels() == ["job2"]


def test_an_empty_store_and_one_that_does_not_answer_are_sentences(
    store: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="no history in memory://bucket/history"):
        history_directory(URL)
    with pytest.raises(NcclscopeError, match="cannot read sss://bucket: Protocol not known"):
        history_directory("sss://bucket")

    def refuse(self: object, path: str, data: bytes) -> None:
        raise RuntimeError("Access\nDenied")

    monkeypatch.setattr(type(store), "pipe_file", refuse)
    with pytest.raises(NcclscopeError, match=r"cannot write memory://.*: Access Denied"):
        add_to_history(URL, job(1))


def test_a_cache_that_cannot_be_made_is_a_sentence(
    store: fsspec.AbstractFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_to_history(URL, job(1))
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path / "file"))
    with pytest.raises(NcclscopeError, match="Set XDG_CACHE_HOME"):
        history_directory(URL)
