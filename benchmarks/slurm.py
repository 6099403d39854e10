"""Captures that workers of a real Slurm decode: every value is that of one machine.

    python -m benchmarks slurm

Needs root, and Debian's packages slurmctld, slurmd, slurm-client and munge. Starts munged, a
controller and two daemons (two nodes on this host) in a folder of its own, and ends them.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.loads import scratch
from benchmarks.results import publish, table
from tests.support.waiting import eventually
from tests.support.writer import ALL_KINDS_OF_WORK, SyntheticSpec, synthetic

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "srun")
_NODES, _WORKERS, _START_S = 2, 2, 120


def _configuration(folder: Path) -> str:
    host = socket.gethostname().split(".")[0]
    nodes = "\n".join(
        f"NodeName=n{n} NodeHostname={host} NodeAddr=127.0.0.1 Port={17000 + n} CPUs=2"
        for n in range(1, _NODES + 1)
    )
    return f"""ClusterName=ncclscope
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort=16817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


@contextmanager
def slurm_cluster(folder: Path, settings: str = "") -> Iterator[None]:
    """A cluster of two nodes on this host; SLURM_CONF names it to all programs."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing or os.geteuid():
        raise SystemExit(f"slurm: needs root and {', '.join(missing) or 'nothing more'}")
    folder.chmod(0o755)
    (folder / "state").mkdir()
    (folder / "slurm.conf").write_text(_configuration(folder) + settings)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    munge = [
        "munged", "--foreground", "--force", f"--socket={folder}/munge.socket", f"--key-file={key}",
        f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log",
        f"--seed-file={folder}/munged.seed",
    ]  # fmt: skip
    commands = [
        munge,
        ["slurmctld", "-D"],
        *(["slurmd", "-D", "-N", f"n{n + 1}"] for n in range(2)),
    ]
    daemons = []
    try:
        for command in commands:
            daemons.append(
                subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
            if command is munge:
                eventually((folder / "munge.socket").exists, _START_S)
        eventually(_all_nodes_are_idle, _START_S)
        yield
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait()


def _output(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def _all_nodes_are_idle() -> bool:
    return _output("sinfo", "--noheader", "--format=%T %D").split() == ["idle", str(_NODES)]


def write_capture(path: Path) -> None:
    """Two attempts on two nodes, all sorts of calls, a missing process and a killed one."""
    groups = ((0, 1, 2, 3), (4, 5, 6, 7), tuple(range(8)))
    spec = SyntheticSpec(
        processes=8, operations=2000, ranks_per_node=4, communicators=groups,
        mix=ALL_KINDS_OF_WORK, attempts=2,
        missing=frozenset({5}), killed=frozenset({2}),
    )  # fmt: skip
    synthetic(path, spec)


def _ncclscope(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "ncclscope", *map(str, words)]


def _answer(capture: Path, on: str) -> tuple[Any, Any]:
    """The JSON of `report`, and the saved model with checksums of all columns."""
    words = _ncclscope("report", "--json", "--on", on, capture)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    saved = json.loads((capture / "model" / "manifest.json").read_text())
    left_out = ("seal", "stamps", "fingerprint")
    return {n: v for n, v in report.items() if n != "capture"}, {
        n: v for n, v in saved.items() if n not in left_out
    }


def _workers() -> list[int]:
    """Processes of workers that decode: children of Dask's nannies."""
    listed = _output("pgrep", "-f", "multiprocessing.spawn.*--multiprocessing-fork")
    return [
        int(pid)
        for pid in listed.split()
        if b"SLURM_JOB_ID" in Path(f"/proc/{pid}/environ").read_bytes()
    ]


def _has_workers() -> bool:
    try:
        return bool(_workers())
    except OSError:  # one of them ended meanwhile
        return False


def _no_job_is_left() -> bool:
    return not _output("squeue", "--noheader").strip()


def _killed_worker(capture: Path, on: str) -> tuple[Any, Any]:
    """The answer of a command whose worker is killed as soon as there is one."""
    words = _ncclscope("report", "--json", "--on", on, capture)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as command:
        eventually(_has_workers, _START_S)
        os.kill(_workers()[0], signal.SIGKILL)
        _, errors = command.communicate()
        assert command.returncode == 0, errors
    return _answer(capture, "here")


def _second_run(capture: Path, on: str) -> tuple[Any, Any]:
    """The answer of a second command, after the first one was interrupted while workers ran."""
    words = _ncclscope("report", "--on", on, capture)
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as command:
        eventually(_has_workers, _START_S)
        command.send_signal(signal.SIGINT)
    eventually(_no_job_is_left, _START_S)
    assert not [path for path in capture.iterdir() if "model" in path.name], "nothing half-written"
    return _answer(capture, on)


def _after_kill(capture: Path, on: str) -> tuple[Any, Any]:
    """The answer of a second command, after the first one was killed with SIGKILL while workers
    ran: nothing of it may be left but what they decoded.
    """
    words = _ncclscope("report", "--on", on, capture)
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as command:
        eventually(_has_workers, _START_S)
        command.kill()
    eventually(_no_job_is_left, _START_S)
    assert not (capture / "model").exists(), "nothing half-written"
    return _answer(capture, on)


def main() -> None:
    """Runs each case against one machine, and publishes what came of it."""
    cases: dict[str, Callable[[Path, str], tuple[Any, Any]]] = {
        "`report --on slurm:2`": _answer,
        "a worker is killed": _killed_worker,
        "the command is interrupted, and run again": _second_run,
        "the command is killed with SIGKILL, and run again": _after_kill,
    }
    rows: list[list[object]] = []
    with scratch() as folder, slurm_cluster(folder):
        write_capture(folder / "here")
        copies = [folder / f"there{number}" for number in range(len(cases) + 1)]
        for copy in copies:
            shutil.copytree(folder / "here", copy)
        expected = _answer(folder / "here", "here")
        for (name, answer), copy in zip(cases.items(), copies, strict=False):
            began = time.perf_counter()
            values = answer(copy, f"slurm:{_WORKERS}")
            eventually(_no_job_is_left, _START_S)
            wall_s = time.perf_counter() - began
            rows.append([name, "yes" if values == expected else "NO", f"{wall_s:.0f}"])
        refused = subprocess.run(
            _ncclscope("report", "--on", "slurm", copies[-1]),
            env={**os.environ, "SBATCH_PARTITION": "nowhere"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        version = _output("sinfo", "--version").strip()
    operations = expected[1]["rows"]["operations"]
    text = (
        f"\n\n{version}, {_NODES} nodes on one host, {_WORKERS} workers; {operations:,} operations "
        "of 14 processes. Equal: the JSON of the report, and checksums of all columns of the "
        "model. No job was left behind. A partition that does not exist: "
        f"`{refused.stderr.strip()}`"
    )
    publish("slurm", table(["", "equal to one machine", "wall s"], rows) + text)
    assert all(row[1] == "yes" for row in rows)
    assert refused.returncode == 1
