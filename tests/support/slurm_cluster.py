"""A real Slurm of two nodes on this host: munged, a controller and two daemons, in a folder of its
own and on ports of its own.

Debian's packages slurmctld, slurmd, slurm-client and munge have the programs; daemons need root.
"""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.free_ports import free_port
from tests.support.waiting import eventually

NODES = 2
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "sinfo", "scancel", "srun")
_START_S = 120
_STOP_S = 30
_NODE = "NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2"


def why_not() -> str:
    """Why there can be no Slurm on this machine; "" if there can."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if os.geteuid():
        missing.insert(0, "root")
    return f"Slurm needs {', '.join(missing)}" if missing else ""


def _configuration(folder: Path) -> str:
    host = socket.gethostname().split(".")[0]
    nodes = "\n".join(
        _NODE.format(number=number + 1, host=host, port=free_port()) for number in range(NODES)
    )
    return f"""ClusterName=ncclscope
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={free_port()}
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
    """A cluster whose nodes are idle; SLURM_CONF names it to all programs. `settings`: further lines
    of slurm.conf.
    """
    folder.chmod(0o755)
    (folder / "state").mkdir()
    (folder / "slurm.conf").write_text(_configuration(folder) + settings)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    munged = [
        "munged", "--foreground", "--force", f"--socket={folder}/munge.socket", f"--key-file={key}",
        f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log",
        f"--seed-file={folder}/munged.seed",
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch, ExitStack() as daemons:
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        daemons.enter_context(_daemon(*munged))
        eventually((folder / "munge.socket").exists, _START_S)
        daemons.enter_context(_daemon("slurmctld", "-D"))
        for number in range(NODES):
            daemons.enter_context(_daemon("slurmd", "-D", "-N", f"n{number + 1}"))
        eventually(_all_nodes_are_idle, _START_S)
        try:
            yield
        finally:  # no step outlives the daemon that looks after it
            output_of("scancel", "--user=root")
            eventually(no_job_is_left, _START_S)


@contextmanager
def _daemon(*command: str) -> Iterator[None]:
    """A daemon that is ended afterwards, whatever it does."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def output_of(*words: str) -> str:
    """What one of Slurm's programs prints."""
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def _all_nodes_are_idle() -> bool:
    return output_of("sinfo", "--noheader", "--format=%T %D").split() == ["idle", str(NODES)]


def no_job_is_left() -> bool:
    """Whether the queue is empty, and all jobs have ended."""
    return not output_of("squeue", "--noheader").strip()
