"""What recording adds to 64-byte calls of real NCCL, against an empty plugin with the same events.

Two ranks share the GPU under CUDA MPS, so that their kernels run side by side. A block is a fresh
communicator with one plugin; the blocks of a round follow each other in random order in the same
two processes. NCCL remembers for the life of a process that it found no plugin, so the blocks
without one have processes of their own, which wait while the others run.
"""

import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from ncclscope.native import empty_plugin_path, plugin_path
from tests.gpu.mps import mps

ROUNDS, CALLS, RANKS = 26, 1500, 2
CORES = 4  # of each rank: caller, proxy, recorder's helper, one to spare
BAR = 1.03
# The events of each mode, as native/src/config.c asks for them.
EVENTS = {"profile": 0x7746, "trace": 0xFF4F, "full": 0xFFFF}
FUNCTIONS = ("AllReduce", "SendRecv")


Block = dict[tuple[str, str], float]  # microseconds by function and measure


@dataclass(frozen=True)
class Placing:
    """How the two ranks pose."""

    title: str
    library: Path
    hosts: int


@dataclass(frozen=True)
class Comparison:
    """One mode against the empty plugin: medians over the blocks, and the ratio's 95 % interval."""

    mode: str
    empty_us: float
    ours_us: float
    ratio: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Whether the bar holds."""
        if self.high <= BAR:
            return "holds"
        return "not resolved" if self.low <= BAR else "**does not hold**"


def bootstrap(ratios: list[float], draws: int = 4000) -> tuple[float, float]:
    """The 95 % interval of the median, by resampling the rounds."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(draws))
    return medians[int(0.025 * draws)], medians[int(0.975 * draws)]


class Ranks:
    """The processes of one job, asked for one block after the other."""

    def __init__(self, driver: Path, cudart: Path, placing: Placing, scratch: Path) -> None:
        self.scratch, self.blocks = scratch, 0
        self.processes = []
        for rank in range(RANKS):
            env = os.environ | {
                "NCCL_HOSTID": f"host{rank if placing.hosts > 1 else 0}",
                "NCCL_SOCKET_IFNAME": "lo",
                "NCCL_IB_DISABLE": "1",
                "NCCL_MULTI_RANK_GPU_ENABLE": "1",
                "RANK": str(rank),
            }
            env.pop("NCCL_PROFILER_PLUGIN", None)
            # Threads that wander between cores would be most of the noise.
            cores = f"{CORES * rank}-{CORES * rank + CORES - 1}"
            command = ["taskset", "-c", cores, driver, placing.library, cudart]
            command += [str(rank), str(RANKS)]
            self.processes.append(
                subprocess.Popen(
                    command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )

    def block(self, settings: dict[str, str]) -> Block:
        """One block: the slower rank's times."""
        self.blocks += 1
        words = [f"{self.scratch}/id{id(self)}.{self.blocks}", str(CALLS)]
        words += [f"{name}={value}" for name, value in settings.items()]
        for process in self.processes:
            assert process.stdin
            process.stdin.write(" ".join(words) + "\n")
            process.stdin.flush()
        found: Block = {}
        for process in self.processes:
            assert process.stdout
            answer = process.stdout.readline().split()
            if len(answer) != 3 * len(FUNCTIONS):
                time.sleep(2)
                codes = [process.poll() for process in self.processes]
                raise RuntimeError(f"exit codes {codes} with {settings}: {answer}")
            for function, single_ns, stream_ns in zip(*[iter(answer)] * 3, strict=True):
                for measure, ns in (("synchronised", single_ns), ("back to back", stream_ns)):
                    key = (function, measure)
                    found[key] = max(found.get(key, 0), float(ns) / 1e3)
        return found

    def close(self) -> None:
        """Lets the processes end."""
        for process in self.processes:
            assert process.stdin
            process.stdin.close()
        for process in self.processes:
            if process.wait(timeout=30) != 0:
                raise RuntimeError("a rank did not end well")


def find_cudart() -> Path:
    """CUDA's runtime library, PyTorch's or the toolkit's."""
    import torch

    places = [Path(torch.__file__).parents[1] / "nvidia", Path("/usr/local/cuda/lib64")]
    for place in places:
        for path in sorted(place.glob("**/libcudart.so*")):
            return path
    raise SystemExit("no libcudart found")


def configurations(scratch: Path) -> dict[str, dict[str, str]]:
    """Variables by block. Each plugin is a copy: a library of its own, with its own settings."""
    found = {}
    for mode, events in EVENTS.items():
        for kind, plugin in (("empty", empty_plugin_path()), ("ours", plugin_path())):
            copy = scratch / f"{kind}-{mode}.so"
            shutil.copy(plugin, copy)
            found[f"{kind} {mode}"] = {
                "NCCL_PROFILER_PLUGIN": str(copy),
                "NCCLSCOPE_EMPTY_EVENTS": hex(events),
                "NCCLSCOPE_MODE": mode,
                "NCCLSCOPE_DIR": str(scratch / f"capture-{mode}"),
            }
    return found


def measure(placing: Placing, driver: Path, scratch: Path) -> dict[str, list[Block]]:
    """All blocks, by configuration."""
    cudart = find_cudart()
    with_plugin = Ranks(driver, cudart, placing, scratch)
    without = Ranks(driver, cudart, placing, scratch)
    chosen = configurations(scratch)
    names = [*chosen, "none"]
    found: dict[str, list[Block]] = {name: [] for name in names}
    chance = random.Random(2)
    for number in range(ROUNDS + 1):
        for name in chance.sample(names, len(names)):
            block = without.block({}) if name == "none" else with_plugin.block(chosen[name])
            if number:  # the first round warms up
                found[name].append(block)
    with_plugin.close()
    without.close()
    return found


def compare(blocks: dict[str, list[Block]], key: tuple[str, str]) -> list[Comparison]:
    """Each mode against the empty plugin of the same round."""
    found = []
    for mode in EVENTS:
        empty = [block[key] for block in blocks[f"empty {mode}"]]
        ours = [block[key] for block in blocks[f"ours {mode}"]]
        ratios = [o / e for o, e in zip(ours, empty, strict=True)]
        low, high = bootstrap(ratios)
        found.append(
            Comparison(
                mode,
                statistics.median(empty),
                statistics.median(ours),
                statistics.median(ratios),
                low,
                high,
            )
        )
    return found


def overhead(placings: list[Placing]) -> tuple[list[list[object]], bool]:
    """Rows for the table, and whether no bar is broken."""
    rows: list[list[object]] = []
    fine = True
    with tempfile.TemporaryDirectory() as directory, mps():
        scratch = Path(directory)
        driver = scratch / "latency"
        source = Path(__file__).with_name("latency.c")
        subprocess.run(["gcc", "-O2", "-o", driver, source, "-ldl"], check=True)
        for placing in placings:
            blocks = measure(placing, driver, scratch)
            for function in FUNCTIONS:
                for how in ("synchronised", "back to back"):
                    key = (function, how)
                    none_us = statistics.median(block[key] for block in blocks["none"])
                    for result in compare(blocks, key):
                        fine &= result.low <= BAR
                        rows.append(
                            [
                                placing.title,
                                function,
                                how,
                                result.mode,
                                f"{none_us:.2f}",
                                f"{result.empty_us:.2f}",
                                f"{result.ours_us:.2f}",
                                f"{result.ratio:.3f} [{result.low:.3f}, {result.high:.3f}]",
                                result.verdict,
                            ]
                        )
                        print(*rows[-1], flush=True)
    return rows, fine
