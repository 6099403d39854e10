"""The processes of this host's ranks: starts them, watches them, and ends them in any case."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from ncclscope.bench.libraries import Libraries
from ncclscope.bench.rank_placement import RankPlacement
from ncclscope.bench.worker import STOPPED, RankConfig
from ncclscope.errors import NcclscopeError
from ncclscope.launch.child import stopped_by_signals

_END_S = 2.0  # a rank that has not ended by itself after this is killed
# A program around a rank, such as nsys, writes its files when the rank has ended.
_PROGRAM_END_S = 60.0


def sharing_variables(rank: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that make NCCL accept several ranks on one GPU: each claims to be another host.

    They communicate over sockets then, on this host's loopback interface.
    """
    variables = {
        "NCCL_HOSTID": f"ncclscope-bench-{rank}",
        "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_IB_DISABLE": "1",
    }
    return {name: value for name, value in variables.items() if name not in environment}


class RankProcesses:
    """The processes of this host."""

    def __init__(self) -> None:
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._end_s = _END_S

    def start(
        self,
        placement: RankPlacement,
        port: int,
        libraries: Libraries,
        devices: Mapping[int, int],
        share: bool,
        timeout_s: float,
        environment: Mapping[str, str],
        prefix: Sequence[str] = (),
        directory: Path | None = None,
    ) -> None:
        """Starts this host's ranks: below a command such as nsys, and in a directory, if given."""
        self._end_s = _PROGRAM_END_S if prefix else _END_S
        for rank in placement.local_ranks:
            config = RankConfig(
                placement.host, port, rank, placement.ranks, devices[rank], libraries.nccl,
                libraries.cudart, placement.token, timeout_s,
            )  # fmt: skip
            variables = {**environment, "RANK": str(rank), "WORLD_SIZE": str(placement.ranks)}
            if not placement.launcher:
                variables["LOCAL_WORLD_SIZE"] = str(len(placement.local_ranks))
            variables |= sharing_variables(rank, environment) if share else {}
            # NCCL prints to stdout, which is for results.
            self._processes[rank] = subprocess.Popen(
                [
                    *prefix,
                    sys.executable,
                    "-m",
                    "ncclscope.bench.worker",
                    json.dumps(asdict(config)),
                ],
                env=variables,
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=sys.stderr.fileno(),
            )

    def first_failure(self) -> str | None:
        """Which rank failed first, and how; None if none did."""
        for rank, process in self._processes.items():
            code = process.poll()
            if code not in (None, 0, STOPPED):
                return f"rank {rank} (process {process.pid}) {exit_cause(code)}"
        return None

    def wait(self, timeout_s: float | None = None) -> str | None:
        """Waits until all ranks have ended; returns what went wrong, or None."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        stopped = None
        for rank, process in self._processes.items():
            try:
                remaining_s = None if until is None else max(until - time.monotonic(), 0)
                code = process.wait(remaining_s)
            except subprocess.TimeoutExpired:
                return f"rank {rank} (process {process.pid}) did not end"
            if code == STOPPED:
                stopped = "the benchmark was given up; rank 0 says why"
        return self.first_failure() or stopped

    def end(self) -> None:
        """Ends the ranks that still run."""
        for process in self._processes.values():
            if process.stdin:
                with contextlib.suppress(OSError):
                    process.stdin.close()  # ranks end when it does
        until = time.monotonic() + self._end_s
        for process in self._processes.values():
            try:
                process.wait(max(until - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def exit_cause(code: int | None) -> str:
    """What an exit code means, in words."""
    if code is not None and code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"was killed by {name}"
    return f"ended with exit code {code}"


@contextlib.contextmanager
def running_ranks() -> Iterator[RankProcesses]:
    """Processes of ranks that are ended when the block is left, also by a signal."""
    ranks = RankProcesses()
    try:
        with stopped_by_signals():
            yield ranks
    finally:
        ranks.end()


def visible_devices(libraries: Libraries) -> int:
    """Number of GPUs that a rank sees, counted in another process: this one does not use CUDA."""
    code = (
        "import sys\nfrom ncclscope.bench.cuda import Cuda\n"
        "from ncclscope.errors import NcclscopeError\n"
        "try:\n print(Cuda(sys.argv[1]).device_count())\n"
        "except NcclscopeError as error:\n sys.exit(str(error))\n"
    )
    command = [sys.executable, "-c", code, libraries.cudart]
    try:
        counted = subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=False, env=os.environ
        )
    except subprocess.TimeoutExpired:
        raise NcclscopeError(
            "cannot count GPUs: CUDA did not answer within 120 s", "Look at nvidia-smi"
        ) from None
    if counted.returncode:
        raise NcclscopeError(counted.stderr.strip().removesuffix(".") or "cannot ask CUDA for GPUs")
    return int(counted.stdout)
