"""Makes the model of a capture on workers that Slurm starts, and takes them down.

One job of single tasks, each a Dask worker of one thread; the scheduler runs beside the command.
They find each other by a file in the model's folder, which workers must see in any case. Partition,
account, time and memory are Slurm's own defaults, or what variables SBATCH_… say.
"""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from ncclscope.engines.dask_cluster import check_distributed, cluster_engine
from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.humanize import plural, printable
from ncclscope.model.engine import Engine

_SLURM = "slurm"
_WORKERS = 8
_POLL_S = 1.0
_JOIN_S = 60  # that workers of a running job may take to join
_IDLE = "10 minutes"  # after which the scheduler ends by itself, whatever became of the command
# The kernel ends the scheduler when the command is killed (1: PR_SET_PDEATHSIG). Without it workers
# end, and with them the job.
_SCHEDULER = """
import ctypes, runpy, signal
ctypes.CDLL(None).prctl(1, int(signal.SIGTERM))
runpy.run_module("distributed.cli.dask_scheduler", run_name="__main__", alter_sys=True)
"""
_SCHEDULER_FILE, _LOG = "scheduler.json", "slurm.log"


@contextmanager
def slurm_engine(
    on: str, folders: Sequence[Path], target: Path, tell: Callable[[str], None]
) -> Iterator[Engine]:
    """An engine for the folders, as `cluster_engine`. `on`: slurm, or slurm: and a number of
    workers.
    """
    workers = min(_workers(on), max(len(folders), 1))
    check_distributed(on)
    log, file = target / _LOG, target / _SCHEDULER_FILE
    try:
        with _job(workers, file, log) as job, _scheduler(file, on):
            tell(f"Slurm job {job}: {plural(workers, 'worker')} asked for")

            start = partial(_wait_for_start, job, log, tell)
            address = f"file:{file}"
            with cluster_engine(
                address, folders, target, tell, on, workers, _JOIN_S, start
            ) as engine:
                yield engine
    finally:
        file.unlink(missing_ok=True)
        log.unlink(missing_ok=True)


def _workers(on: str) -> int:
    number = on.removeprefix(_SLURM).removeprefix(":")
    if not number and on == _SLURM:
        return _WORKERS
    if not number.isdecimal() or not int(number):
        message = f"--on {on} has no number of workers"
        raise UsageError(message, "Use slurm, or slurm:16 for 16 workers")
    return int(number)


def _run(*words: str, script: str = "") -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(words, input=script, capture_output=True, text=True, check=False)
    except OSError as error:
        message = f"cannot run {words[0]}: {error.strerror}"
        raise UsageError(message, "Run it on a machine that submits jobs to Slurm") from None


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return printable(lines[0])[:300] if lines else "no reason given"


# ---- the job ----
@contextmanager
def _job(workers: int, file: Path, log: Path) -> Iterator[str]:
    """The number of a job that runs the workers; it is cancelled at the end."""
    worker = [
        sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file),
        "--nthreads", "1", "--no-dashboard", "--memory-limit", "0", "--death-timeout", "60",
    ]  # fmt: skip
    script = (
        "#!/bin/sh\nexport OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1\n"
        f'exec srun {shlex.join(worker)} --local-directory "${{TMPDIR:-/tmp}}"\n'
    )
    submitted = _run(
        "sbatch", "--parsable", "--job-name=ncclscope", f"--ntasks={workers}",
        f"--output={log}", "--open-mode=append", script=script,
    )  # fmt: skip
    if submitted.returncode:
        message = f"Slurm refused the job: {_first_line(submitted.stderr)}"
        raise NcclscopeError(message, "Set SBATCH_PARTITION, SBATCH_ACCOUNT …, or fewer workers")
    job = submitted.stdout.strip().split(";")[0]
    try:
        yield job
    finally:
        _run("scancel", "--quiet", job)


def _wait_for_start(job: str, log: Path, tell: Callable[[str], None]) -> None:
    """Waits until the job runs, for as long as Slurm lets it wait. NcclscopeError if it is gone."""
    said = ""
    while True:
        state, _, reason = (
            _run("squeue", "--noheader", f"--jobs={job}", "--format=%T %r")
            .stdout.strip()
            .partition(" ")
        )
        if state == "RUNNING":
            return
        if state not in ("PENDING", "CONFIGURING", "SUSPENDED", "REQUEUED"):
            message = f"Slurm job {job} ended before it decoded anything: {_reason(log, state)}"
            raise NcclscopeError(message, "Workers need this Python, and must see the capture")
        if said != reason:
            said = reason
            tell(f"Slurm job {job} waits: {printable(reason)}")
        time.sleep(_POLL_S)


def _reason(log: Path, state: str) -> str:
    """The last line that the job wrote, else its state."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    return _first_line(lines[-1]) if lines else state.lower() or "no reason given"


# ---- the scheduler ----
@contextmanager
def _scheduler(file: Path, on: str) -> Iterator[None]:
    """A Dask scheduler that has written its file."""
    environment = {**os.environ, "DASK_DISTRIBUTED__SCHEDULER__IDLE_TIMEOUT": _IDLE}
    process = subprocess.Popen(
        [sys.executable, "-c", _SCHEDULER, "--scheduler-file", str(file), "--port", "0",
         "--no-dashboard", "--no-show"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=environment, start_new_session=True,  # Ctrl-C is for the command, which ends it
    )  # fmt: skip
    try:
        while not (file.exists() and file.stat().st_size):
            if process.poll() is not None:
                raise NcclscopeError(f"cannot use --on {on}: the Dask scheduler ended at once")
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()
