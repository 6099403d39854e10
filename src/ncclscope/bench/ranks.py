"""Starting this host's ranks, watching over them, and ending them, whatever happens."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from ncclscope.bench.libraries import Libraries
from ncclscope.bench.rank_placement import RankPlacement
from ncclscope.bench.worker import STOPPED, Place
from ncclscope.errors import NcclscopeError
from ncclscope.launch.child import stopped_by_signals

_LAST_S = 2.0  # for a rank to end by itself


def sharing_variables(rank: int, environment: Mapping[str, str]) -> dict[str, str]:
    """What makes NCCL put several ranks on one GPU: each poses as a host of its own.

    They talk over sockets then, on this host's loopback interface.
    """
    wanted = {
        "NCCL_HOSTID": f"ncclscope-bench-{rank}",
        "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_IB_DISABLE": "1",
    }
    return {name: value for name, value in wanted.items() if name not in environment}


class Ranks:
    """The processes of this host."""

    def __init__(self) -> None:
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(
        self,
        places: RankPlacement,
        port: int,
        libraries: Libraries,
        devices: Mapping[int, int],
        share: bool,
        timeout_s: float,
        environment: Mapping[str, str],
    ) -> None:
        """Starts every rank that is ours."""
        for rank in places.mine:
            place = Place(
                places.host, port, rank, places.ranks, devices[rank], libraries.nccl,
                libraries.cudart, places.token, timeout_s,
            )  # fmt: skip
            variables = {**environment, "RANK": str(rank), "WORLD_SIZE": str(places.ranks)}
            if not places.launcher:
                variables["LOCAL_WORLD_SIZE"] = str(len(places.mine))
            variables |= sharing_variables(rank, environment) if share else {}
            # NCCL's own words go to stdout: results alone belong there.
            self._processes[rank] = subprocess.Popen(
                [sys.executable, "-m", "ncclscope.bench.worker", json.dumps(asdict(place))],
                env=variables,
                stdin=subprocess.PIPE,
                stdout=sys.stderr.fileno(),
            )

    def fallen(self) -> str | None:
        """The first that ended as none should, in words."""
        for rank, process in self._processes.items():
            code = process.poll()
            if code not in (None, 0, STOPPED):
                return f"rank {rank} (process {process.pid}) {how_ended(code)}"
        return None

    def wait(self, timeout_s: float | None = None) -> str | None:
        """Until all have ended; who did not end well, in words."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        stopped = None
        for rank, process in self._processes.items():
            try:
                left = None if until is None else max(until - time.monotonic(), 0)
                code = process.wait(left)
            except subprocess.TimeoutExpired:
                return f"rank {rank} (process {process.pid}) did not end"
            if code == STOPPED:
                stopped = "the benchmark was given up; rank 0 says why"
        return self.fallen() or stopped

    def end(self) -> None:
        """Ends those that are left."""
        for process in self._processes.values():
            if process.stdin:
                with contextlib.suppress(OSError):
                    process.stdin.close()  # they notice
        until = time.monotonic() + _LAST_S
        for process in self._processes.values():
            try:
                process.wait(max(until - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def how_ended(code: int | None) -> str:
    """An exit code in words."""
    if code is not None and code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"was killed by {name}"
    return f"ended with exit code {code}"


@contextlib.contextmanager
def supervised() -> Iterator[Ranks]:
    """Ranks that are gone at the end of the block; a signal ends it, too."""
    ranks = Ranks()
    try:
        with stopped_by_signals():
            yield ranks
    finally:
        ranks.end()


def visible_devices(libraries: Libraries) -> int:
    """How many GPUs a rank would see; asked in a process of its own, CUDA stays out of this one."""
    code = (
        "import sys\nfrom ncclscope.bench.cuda import Cuda\n"
        "from ncclscope.errors import NcclscopeError\n"
        "try:\n print(Cuda(sys.argv[1]).device_count())\n"
        "except NcclscopeError as error:\n sys.exit(str(error))\n"
    )
    command = [sys.executable, "-c", code, libraries.cudart]
    try:
        said = subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=False, env=os.environ
        )
    except subprocess.TimeoutExpired:
        raise NcclscopeError(
            "cannot count GPUs: CUDA did not answer within 120 s", "Look at nvidia-smi"
        ) from None
    if said.returncode:
        raise NcclscopeError(said.stderr.strip().removesuffix(".") or "cannot ask CUDA for GPUs")
    return int(said.stdout)
