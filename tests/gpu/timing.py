"""What GPU timing costs a job against no plugin at all, and how right sampled times are.

Pieces of minutes, so that each can be run by itself:

  copies      AllReduce and Send/Recv, four sizes, four ways, beside a copy of NCCL that has no
              plugin in the same process: profile mode as it comes, trace mode with sampled timing,
              and KernelCh (timing_pairs.py)
  pairs       the same with events switched on and off in one process (timing_pairs.py)
  accuracy    sampled times against KernelCh's of the same operations
  events      sampled times against CUDA events of the program, where KernelCh is no truth
  graphs      replays made against replays counted: capture modes, streams, updates, child graphs
  training    steps of a DDP and an FSDP job with and without the recorder, in pairs of blocks

Every measured process adds a line to --results; tables are made of all lines there, so a piece may
be run again for narrower intervals.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncclscope.native import plugin_path

HERE = Path(__file__).parent
RANKS, CORES = 2, 4  # each rank on cores of its own
Measure = tuple[str, int, str]  # function, bytes, way
VARIANTS = {
    "profile": {"NCCLSCOPE_MODE": "profile", "NCCLSCOPE_GPU_TIMING": "auto"},
    "trace, sampled": {"NCCLSCOPE_MODE": "trace", "NCCLSCOPE_GPU_TIMING": "sampled"},
    "profile, kernel": {"NCCLSCOPE_MODE": "profile", "NCCLSCOPE_GPU_TIMING": "kernel"},
}
BARRED = ("profile", "trace, sampled")  # variants that must not slow a job down
MOST_CPU = 1.05


def most_wall(measure: Measure) -> float:
    """The bar of a measure's wall time against no plugin."""
    _, size_bytes, way = measure
    return 1.03 if size_bytes <= 64 and not way.startswith("graph") else 1.02


@dataclass(frozen=True)
class Placing:
    """Which NCCL, and as how many hosts its ranks pose."""

    release: str
    library: Path
    cudart: Path
    hosts: int

    @property
    def title(self) -> str:
        return f"{self.release}, {'two hosts' if self.hosts > 1 else 'one host'}"


@dataclass(frozen=True)
class Interval:
    """A ratio of medians with its 95 % interval."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.3f} [{self.low:.3f}, {self.high:.3f}]"


def verdict(result: Interval, bar: float) -> str:
    """Whether a bar holds."""
    if result.high <= bar:
        return "holds"
    return "not resolved" if result.low <= bar else "**does not hold**"


# ---- running ranks ----
def rank_environment(
    rank: int, hosts: int, variables: dict[str, str] | None, ranks: int = RANKS
) -> dict[str, str]:
    """Variables of a rank that poses as its host."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("NCCL")}
    env |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "NCCL_HOSTID": f"host{rank if hosts > 1 else 0}",
        "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_IB_DISABLE": "1",
        "NCCL_MULTI_RANK_GPU_ENABLE": "1",
    }
    env |= {k: v for k, v in os.environ.items() if k.startswith("NCCLSCOPE_SIM")}
    if variables is not None:
        env |= {"NCCL_PROFILER_PLUGIN": str(plugin_path())} | variables
    return env


def pinned(rank: int, command: list[str], ranks: int = RANKS) -> list[str]:
    """The command on the rank's own cores, where there are enough."""
    if (os.cpu_count() or 1) < ranks * CORES:
        return command
    return ["taskset", "-c", f"{CORES * rank}-{CORES * rank + CORES - 1}", *command]


def outputs_of(commands: list[tuple[list[str], dict[str, str]]], timeout_s: float) -> list[str]:
    """Runs the commands of all ranks at once; what each printed."""
    print(f"{time.strftime('%H:%M:%S')} {commands[0][0][:6]}", file=sys.stderr, flush=True)
    ranks = [
        subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for command, env in commands
    ]
    try:
        printed = [rank.communicate(timeout=timeout_s) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for rank, (_, errors) in zip(ranks, printed, strict=True):
        if rank.returncode:
            raise RuntimeError(f"a rank ended with {rank.returncode}:\n{errors[-3000:]}")
    return [out for out, _ in printed]


def build_rank(scratch: Path) -> Path:
    """The measuring program."""
    program = scratch / "timing_rank"
    subprocess.run(["gcc", "-O2", "-o", program, HERE / "timing_rank.c", "-ldl"], check=True)
    return program


# ---- results on disk ----
def keep(results: Path, line: dict[str, Any]) -> None:
    """Adds a line to the results."""
    results.mkdir(parents=True, exist_ok=True)
    with (results / "timing.jsonl").open("a") as lines:
        lines.write(json.dumps(line) + "\n")


def kept(results: Path, piece: str, title: str) -> list[dict[str, Any]]:
    """The lines of a piece."""
    path = results / "timing.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [line for line in lines if line["piece"] == piece and line["title"] == title]


def rounds(minutes: float, least: int = 1) -> Iterator[int]:
    """Numbers until the time is nearly over, judged by how long the rounds so far took."""
    begun, number = time.monotonic(), 0
    while number < least or (time.monotonic() - begun) * (number + 1) / number < minutes * 60:
        yield number
        number += 1


# ---- graphs ----
def replays_counted(capture: Path) -> list[list[int]]:
    """By process, how often graphs were replayed as markers counted, in ascending order."""
    from ncclscope.capture.housekeeping import process_folders
    from ncclscope.capture.metadata import by_kind, read_meta_file
    from ncclscope.capture.segment import Damage

    counted = []
    for folder in process_folders(capture):
        _, slots = read_meta_file(folder / "meta", Damage())
        last = {
            int(slot["capture"]): int(slot["replays"]) for slot in by_kind(slots).of("GraphReplays")
        }
        counted.append(sorted(last.values()))
    return counted


def graphs(placing: Placing) -> tuple[list[list[object]], bool]:
    """Replays made against replays counted, by rank. What captures end with is compared with the
    same program without the plugin.
    """
    with tempfile.TemporaryDirectory() as scratch:
        capture = Path(scratch) / "capture"
        variables = {"NCCLSCOPE_DIR": str(capture), "NCCLSCOPE_MODE": "profile"}
        control = run_graphs(placing, f"{scratch}/control", None)
        printed = run_graphs(placing, f"{scratch}/id", variables)
        counted = replays_counted(capture)
    undisturbed = [answer["notes"] for answer in control] == [a["notes"] for a in printed]
    if not undisturbed:
        print(f"without the plugin {control}, with it {printed}", file=sys.stderr)
    rows: list[list[object]] = []
    for answer in printed:
        made = sorted(answer["replays"])
        right = made in counted
        notes = ", ".join(f"{what}: {code or 'fine'}" for what, code in answer["notes"].items())
        row = [placing.title, answer["rank"], notes, len(made), sum(made)]
        rows.append([*row, "all" if right else f"**{counted}, not {made}**"])
    return rows, undisturbed and all(row[-1] == "all" for row in rows)


def run_graphs(
    placing: Placing, rendezvous: str, variables: dict[str, str] | None
) -> list[dict[str, Any]]:
    """What each rank of the program with graphs printed."""
    commands = []
    for rank in range(RANKS):
        env = rank_environment(rank, placing.hosts, variables) | {
            "RDV": rendezvous,
            "NCCL_LIB": str(placing.library),
            "CUDART": str(placing.cudart),
        }
        commands.append(([sys.executable, str(HERE / "timing_graphs.py")], env))
    return [json.loads(out.splitlines()[-1]) for out in outputs_of(commands, 40)]


GRAPHS_HEADER = ["NCCL, ranks", "rank", "CUDA's results", "captures", "replays made", "counted"]
