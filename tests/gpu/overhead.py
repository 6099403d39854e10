"""What recording adds to calls of real NCCL, against an empty plugin with the same events.

Two ranks share the GPU under CUDA MPS, so that their kernels run side by side. Communicators differ
from each other by more than a recorder costs, so each is measured with all plugins in turn, in many
short blocks (switching_plugin.c). The third plugin reads the clock once a callback and does nothing
else: what any plugin that knows times must cost. NCCL remembers for the life of a process that it
measured no plugin, so the blocks without one have processes of their own, which wait while the others
run.
"""

import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ncclscope.capture.reader import open_capture
from ncclscope.native import plugin_path
from ncclscope.overhead.statistics import bootstrap_interval
from tests.gpu.mps import mps

RANKS = 2
CORES = 4  # of each rank: caller, proxy, recorder's helper, one to spare
COMMUNICATORS, ROUNDS, CALLS = 3, 50, 200  # of each mode; rounds of three blocks in each; a block
BAR = 1.03
MODES = ("profile", "trace", "full")
KINDS = {"e": "empty", "c": "clock", "o": "ours"}
WORK = (  # function, bytes
    ("AllReduce", 64),
    ("SendRecv", 64),
    ("AllReduce", 1 << 10),
    ("AllReduce", 1 << 20),
)
MEASURES = ("synchronised", "back to back")

# Microseconds of each block by function, bytes and measure.
Times = dict[tuple[str, int, str], list[float]]


@dataclass(frozen=True)
class Placing:
    """How the two ranks pose."""

    title: str
    library: Path
    hosts: int


@dataclass(frozen=True)
class Ratio:
    """The median over rounds, and its 95 % interval."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.3f} [{self.low:.3f}, {self.high:.3f}]"

    @property
    def verdict(self) -> str:
        """Whether the bar holds."""
        if self.high <= BAR:
            return "holds"
        return "not resolved" if self.low <= BAR else "**does not hold**"


def ratio(above: list[float], below: list[float], draws: int = 4000) -> Ratio:
    """Of two plugins' blocks, round by round; the interval by resampling the rounds."""
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    interval = bootstrap_interval(
        lambda chance: statistics.median(chance.choices(ratios, k=len(ratios))), draws
    )
    return Ratio(statistics.median(ratios), *interval)


class Ranks:
    """The processes of one job, asked for one communicator after the other."""

    def __init__(self, driver: Path, cudart: Path, placing: Placing, scratch: Path) -> None:
        self.scratch, self.communicators, self.calls_with_ours = scratch, 0, 0
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

    def measure(self, blocks: str, settings: dict[str, str]) -> Times:
        """One communicator: in each block the slower rank's times."""
        self.communicators += 1
        words = [f"{self.scratch}/id{id(self)}.{self.communicators}", str(CALLS), blocks]
        words += [f"{name}={value}" for name, value in settings.items()]
        for process in self.processes:
            assert process.stdin
            process.stdin.write(" ".join(words) + "\n")
            process.stdin.flush()
        times_us: Times = {}
        for process in self.processes:
            assert process.stdout
            answer = process.stdout.readline().split()
            if len(answer) != len(WORK) * (1 + 2 * len(blocks)) + 1:
                time.sleep(2)
                codes = [process.poll() for process in self.processes]
                raise RuntimeError(f"exit codes {codes} with {settings}: {answer}")
            self.calls_with_ours += int(answer[-1])
            for number, work in enumerate(WORK):
                first = 1 + number * (1 + 2 * len(blocks))
                numbers_us = [float(ns) / 1e3 for ns in answer[first : first + 2 * len(blocks)]]
                for offset, measure in enumerate(MEASURES):
                    own = numbers_us[offset::2]
                    others = times_us.get((*work, measure), own)
                    times_us[(*work, measure)] = list(map(max, own, others))
        return times_us

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Ends the processes: MPS waits for them, a failed job's other rank for ever."""
        for process in self.processes:
            if kind:
                process.kill()
            assert process.stdin
            process.stdin.close()
        ends = [process.wait(timeout=30) for process in self.processes]
        if not kind and any(ends):
            raise RuntimeError(f"ranks ended with {ends}")


def find_cudart() -> Path:
    """CUDA's runtime library, PyTorch's or the toolkit's."""
    import torch

    places = [Path(torch.__file__).parents[1] / "nvidia", Path("/usr/local/cuda/lib64")]
    for place in places:
        for path in sorted(place.glob("**/libcudart.so*")):
            return path
    raise SystemExit("no libcudart found")


def settings_of(scratch: Path) -> dict[str, dict[str, str]]:
    """Variables by mode. Each plugin is a copy: a library of its own, with its own settings.

    To be asked once: a copy that is loaded must not be written again.
    """
    measured = {}
    scratch.mkdir()
    for mode in MODES:
        copy = scratch / f"{mode}.so"
        shutil.copy(plugin_path(), copy)
        measured[mode] = {
            "NCCL_PROFILER_PLUGIN": str(scratch.parent / "switching.so"),
            "SWITCH_TO": str(copy),
            "NCCLSCOPE_MODE": mode,
            "NCCLSCOPE_GPU_TIMING": "kernel",
            "NCCLSCOPE_DIR": str(scratch / "captures" / mode),
        }
    return measured


def measure(placing: Placing, driver: Path, scratch: Path) -> dict[tuple[str, str], Times]:
    """The times of all blocks by mode and kind of plugin; ("", "none") without any."""
    cudart = find_cudart()
    place = scratch / f"hosts{placing.hosts}"
    modes = settings_of(place)
    with (
        Ranks(driver, cudart, placing, scratch) as with_plugin,
        Ranks(driver, cudart, placing, scratch) as without,
    ):
        measured = measure_modes(with_plugin, without, modes)
    captures = [open_capture(capture) for capture in (place / "captures").iterdir()]
    recorded = sum(p.calls_counted() for capture in captures for p in capture.processes)
    if recorded != with_plugin.calls_with_ours:  # or the plugins were not switched as they should
        raise RuntimeError(f"{with_plugin.calls_with_ours} calls made, {recorded} on record")
    return measured


def measure_modes(
    with_plugin: Ranks, without: Ranks, modes: dict[str, dict[str, str]]
) -> dict[tuple[str, str], Times]:
    """As `measure`, with processes that run."""
    measured: dict[tuple[str, str], Times] = {}
    chance = random.Random(2)
    for number in range(COMMUNICATORS + 1):
        for mode, settings in modes.items():
            rounds = ROUNDS if number else 3  # the first one warms up
            order = "".join("".join(chance.sample("eco", 3)) for _ in range(rounds))
            kinds = {("", "none"): (without.measure("-" * rounds, {}), "-" * rounds)}
            both = with_plugin.measure(order, settings)
            kinds |= {(mode, kind): (both, order) for kind in KINDS.values()}
            if not number:
                continue
            for (of_mode, kind), (times, blocks) in kinds.items():
                for key, numbers in times.items():
                    blocks_us = [
                        us
                        for us, at in zip(numbers, blocks, strict=True)
                        if KINDS.get(at, "none") == kind
                    ]
                    measured.setdefault((of_mode, kind), {}).setdefault(key, []).extend(blocks_us)
    return measured


def rows_of(
    placing: Placing, measured: dict[tuple[str, str], Times]
) -> tuple[list[list[object]], bool]:
    """Rows of the table, and whether no bar is broken."""
    rows: list[list[object]] = []
    fine = True
    for key in ((*work, measure) for work in WORK for measure in MEASURES):
        none_us = statistics.median(measured["", "none"][key])
        for mode in MODES:
            empty, clock, ours = (measured[mode, kind][key] for kind in KINDS.values())
            result = ratio(ours, empty)
            fine &= result.low <= BAR
            function, size_bytes, how = key
            rows.append([placing.title, function, f"{size_bytes:,}", how, mode, f"{none_us:.2f}"])
            rows[-1] += [f"{statistics.median(us):.2f}" for us in (empty, ours)]
            rows[-1] += [ratio(clock, empty), result, result.verdict]
            print(*rows[-1], flush=True)
    return rows, fine


def build(scratch: Path) -> Path:
    """The driver, with the switching plugin beside it."""
    here = Path(__file__).parent
    gcc = ["gcc", "-O2", "-I", here.parents[1] / "native" / "include", "-o"]
    subprocess.run([*gcc, scratch / "latency", here / "latency.c", "-ldl"], check=True)
    plugin = [*gcc, scratch / "switching.so", "-shared", "-fPIC", here / "switching_plugin.c"]
    subprocess.run([*plugin, "-ldl"], check=True)
    return scratch / "latency"


def overhead(placings: list[Placing], keep: Callable[[list[list[object]]], None]) -> bool:
    """Whether no bar is broken; rows for the table are kept as they come."""
    rows: list[list[object]] = []
    fine = True
    with tempfile.TemporaryDirectory() as directory, mps():
        scratch = Path(directory)
        driver = build(scratch)
        for placing in placings:
            more, holds = rows_of(placing, measure(placing, driver, scratch))
            rows, fine = rows + more, fine and holds
            keep(rows)
    return fine
