"""Dask clusters on this host, for tests."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.waiting import eventually

START_S = 300
# A worker whose Python has no ncclscope.
WITHOUT_PACKAGE = """
import runpy, sys
sys.modules["ncclscope"] = None
runpy.run_module("distributed.cli.dask_worker", run_name="__main__", alter_sys=True)
"""
# A worker with an older one.
OLDER_PACKAGE = """
import runpy
import ncclscope._version
ncclscope._version.__version__ = "0.0.1"
runpy.run_module("distributed.cli.dask_worker", run_name="__main__", alter_sys=True)
"""
_PATIENT = {
    "distributed.comm.timeouts.connect": "300s",
    "distributed.comm.timeouts.tcp": "300s",
    "distributed.nanny.pre-spawn-environ.OMP_NUM_THREADS": 1,
}


# Workers that are killed again and again start as forks. One asks another that is dead for as long as
# its patience, from time to time: Dask learns of a death by two ways. It looks so long after a death
# whether the worker is back, and ends it for good where it has just died again.
_MANY_DEATHS = {
    "distributed.deploy.lost-worker-timeout": "1h",
    "distributed.worker.multiprocessing-method": "forkserver",
    "distributed.comm.timeouts.connect": "15s",
}


@contextmanager
def local_cluster(many_deaths: bool = False) -> Iterator[Any]:
    """A scheduler in this process and two worker processes, which are started again when they
    die.
    """
    import dask
    import distributed  # noqa: F401  # its settings have to be there, else `set` takes them away

    settings = _PATIENT | (_MANY_DEATHS if many_deaths else {})
    with dask.config.set(settings), _started() as local:
        yield local


def _started() -> Any:
    """A cluster on ports of its own. Dask gives a worker that starts on a busy machine little time,
    and then raises a RuntimeError: it is started again.
    """
    import distributed

    for last in (False, False, True):
        try:
            return distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
            )
        except RuntimeError:
            if last:
                raise
    raise AssertionError


def _start(*words: str | Path, user: Sequence[str] = ()) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [*user, sys.executable, *map(str, words)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@contextmanager
def cluster_of_processes(
    folder: Path, workers: int = 2, worker_code: str = "", user: Sequence[str] = ()
) -> Iterator[tuple[str, list[Any]]]:
    """The address of a scheduler, and its process followed by those of workers, which nobody starts
    again. `user`: the words of a command that starts them as somebody else.
    """
    file = folder / f"scheduler-{time.monotonic_ns()}.json"
    where = ("--scheduler-file", file, "--no-dashboard", "--port", "0", "--no-show")
    processes = [_start("-m", "distributed.cli.dask_scheduler", *where, user=user)]
    try:
        eventually(lambda: file.exists() and file.stat().st_size > 0, START_S)
        processes += [start_worker(file, worker_code, user) for _ in range(workers)]
        yield f"file:{file}", processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def start_worker(
    scheduler_file: Path, code: str = "", user: Sequence[str] = ()
) -> "subprocess.Popen[bytes]":
    """One more worker, which the caller ends."""
    return _start(
        *(("-c", code) if code else ("-m", "distributed.cli.dask_worker")),
        "--scheduler-file", scheduler_file, "--no-dashboard", "--no-nanny", "--nthreads", "1",
        "--memory-limit", "0", "--local-directory", scheduler_file.parent, user=user,
    )  # fmt: skip
