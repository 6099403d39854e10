"""Files of a history: whole or not there, whoever writes and however a writer ends."""

import multiprocessing
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ncclscope.errors import UsageError
from ncclscope.history import reader
from ncclscope.history.pruning import prune
from ncclscope.history.reader import History
from ncclscope.history.tables import HOSTS, JOBS, TABLES, JobSums
from ncclscope.history.trend import host_trend, link_trend, role_trends
from ncclscope.history.writer import write_job
from tests.support.history_jobs import fleet, made_job, relabelled

WRITERS, JOBS_EACH = 3, 3


def job(number: int) -> JobSums:
    return made_job(number, fleet(4), np.random.default_rng(number))


def labels(path: Path) -> list[str]:
    return [job.row.label for job in History(path).jobs]


def test_jobs_come_back_as_they_were_written(tmp_path: Path) -> None:
    sums = job(3)
    write_job(tmp_path, sums)
    history = History(tmp_path)
    (kept,) = history.jobs
    assert kept.row == sums.job
    assert (kept.name.identity, kept.name.shape) == (sums.identity, sums.shape)
    columns = ("host", "place", "ranks", "job_ns", "origin_ns", "waited_ns", "times_last")
    rows = {tuple(row[1:]) for row in history.rows(HOSTS, columns)}
    assert rows == {tuple(getattr(row, name) for name in columns) for row in sums.hosts}


def test_sums_beyond_64_bits_are_kept_as_the_largest(tmp_path: Path) -> None:
    """A damaged capture can have them."""
    sums = job(3)
    write_job(tmp_path, replace(sums, job=replace(sums.job, structure_ns=-(1 << 64))))
    (kept,) = History(tmp_path).jobs
    assert kept.row.structure_ns == 1 - (1 << 63)


def test_jobs_are_in_the_order_of_their_starts_and_the_last_can_be_chosen(tmp_path: Path) -> None:
    for number in (2, 0, 1):
        write_job(tmp_path, job(number))
    assert labels(tmp_path) == ["job0", "job1", "job2"]
    assert [job.row.label for job in History(tmp_path, last=2).jobs] == ["job1", "job2"]


def test_a_capture_that_is_added_again_replaces_what_was_kept(tmp_path: Path) -> None:
    write_job(tmp_path, job(0))
    write_job(tmp_path, replace(relabelled(job(0), "again"), shape="0" * 12))
    assert labels(tmp_path) == ["again"]
    assert all(len(list((tmp_path / table).iterdir())) == 1 for table in (JOBS, HOSTS))


def add_jobs(path: Path, first: int) -> None:
    for number in range(first, first + JOBS_EACH):
        write_job(path, job(number))
        write_job(path, job(1000))  # of one capture that all of them add


def test_several_writers_add_jobs_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [
        context.Process(target=add_jobs, args=(tmp_path, 100 * place)) for place in range(WRITERS)
    ]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
        assert process.exitcode == 0
    wanted = [f"job{100 * place + n}" for place in range(WRITERS) for n in range(JOBS_EACH)]
    history = History(tmp_path)
    assert sorted(job.row.label for job in history.jobs) == sorted([*wanted, "job1000"])
    assert history.left_out == 0


def die_after_renames(path: Path, renames: int) -> None:
    """Adds a job until so many files have their names."""
    rename, done = os.replace, []

    def rename_or_die(source: Path, target: Path) -> None:
        if len(done) == renames:
            os.kill(os.getpid(), signal.SIGKILL)
        done.append(target)
        rename(source, target)

    os.replace = rename_or_die  # type: ignore[assignment]
    write_job(path, job(1))


@pytest.mark.parametrize("renames", range(len(TABLES) - 1))
def test_a_writer_that_is_killed_leaves_no_job(tmp_path: Path, renames: int) -> None:
    """Killed before the next rename, after each number of renames: four files, the job's last."""
    write_job(tmp_path, job(0))
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=die_after_renames, args=(tmp_path, renames))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert labels(tmp_path) == ["job0"]
    assert len(host_trend(History(tmp_path), "node000").points) == 1
    assert prune(tmp_path, 10, None).leftovers == (), "a writer may still be at it"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    for path in files:
        os.utime(path, (0, time.time() - 2 * 24 * 3600))
    assert len(prune(tmp_path, 10, None).leftovers) == len(files) - 4 == renames + 1
    assert labels(tmp_path) == ["job0"]


@pytest.mark.parametrize("table", [JOBS, HOSTS])
@pytest.mark.parametrize("kept", [0, 40, -1])
def test_files_that_are_not_whole_are_left_out(tmp_path: Path, table: str, kept: int) -> None:
    names = [write_job(tmp_path, job(number)) for number in range(3)]
    path = tmp_path / table / f"{names[1]}.parquet"
    path.write_bytes(path.read_bytes()[:kept])
    history = History(tmp_path)
    assert len(history.jobs) == (2 if table == JOBS else 3)
    assert len(host_trend(history, "node000").points) == 2
    assert history.left_out == 1


def test_a_file_that_is_damaged_inside_is_left_out(tmp_path: Path) -> None:
    names = [write_job(tmp_path, job(number)) for number in range(3)]
    path = tmp_path / HOSTS / f"{names[1]}.parquet"
    content = bytearray(path.read_bytes())
    content[-200:-8] = bytes(192)
    path.write_bytes(content)
    history = History(tmp_path)
    assert len(host_trend(history, "node000").points) == 2
    assert history.left_out == 1


def test_many_files_are_collected_and_answers_stay_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        write_job(tmp_path, job(number))
    before = host_trend(History(tmp_path), "node001")
    monkeypatch.setattr(reader, "_MANY_FILES", 4)
    assert host_trend(History(tmp_path), "node001") == before
    hosts = tmp_path / "collected" / "hosts.parquet"
    assert hosts.exists()
    names = [str(point.job.name) for point in before.points]
    (tmp_path / HOSTS / f"{names[0]}.parquet").write_bytes(b"")  # is not read any more
    write_job(tmp_path, job(6))
    after = host_trend(History(tmp_path), "node001")
    assert after.points[:-1] == before.points
    assert after.points[-1].job.row.label == "job6"
    assert len(host_trend(History(tmp_path, last=2), "node001").points) == 2
    hosts.write_bytes(hosts.read_bytes()[:-1])
    history = History(tmp_path)
    assert len(host_trend(history, "node001").points) == 6, "single files again"
    assert history.left_out == 1
    prune(tmp_path, 3, None)
    assert [p.job.row.label for p in host_trend(History(tmp_path), "node001").points] == [
        "job4",
        "job5",
        "job6",
    ]


def test_files_of_others_are_no_jobs(tmp_path: Path) -> None:
    write_job(tmp_path, job(0))
    (tmp_path / JOBS / "notes.txt").write_text("x")
    (tmp_path / JOBS / "other.parquet").write_text("x")
    assert labels(tmp_path) == ["job0"]


def test_a_directory_without_a_history_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no history in .* Add a job"):
        History(tmp_path)


def test_pruning_keeps_the_last_jobs(tmp_path: Path) -> None:
    for number in range(5):
        write_job(tmp_path, job(number))
    would = prune(tmp_path, 2, None, dry_run=True)
    assert len(would.jobs) == 3
    assert len(labels(tmp_path)) == 5
    assert prune(tmp_path, 2, None).bytes == would.bytes > 0
    assert labels(tmp_path) == ["job3", "job4"]
    assert all(len(list((tmp_path / table).iterdir())) == 2 for table in (JOBS, HOSTS))


def test_pruning_deletes_jobs_by_age(tmp_path: Path) -> None:
    now = job(0)
    now = replace(now, job=replace(now.job, started_ns=time.time_ns()), identity="f" * 12)
    write_job(tmp_path, relabelled(now, "new"))
    old = job(1)
    write_job(tmp_path, replace(old, job=replace(old.job, started_ns=10**18)))
    prune(tmp_path, None, 3600.0)
    assert labels(tmp_path) == ["new"]


def test_links_and_roles_have_trends(tmp_path: Path) -> None:
    for number in range(3):
        write_job(tmp_path, job(number))
    history = History(tmp_path)
    link = link_trend(history, "node000", "node001")
    assert len(link.points) == 3
    assert link.usual == pytest.approx(1.0, rel=0.2)
    trends = role_trends(history, "dp")
    assert len(trends) == 5
    largest = {f"dp of 4 ranks, {name} 64 MiB bfloat16" for name in ("AllReduce", "AllGather")}
    assert {trend.subject for trend in trends[:2]} == largest
    assert [len(trend.points) for trend in trends] == [3] * 5
