"""Profilers compared on real NCCL: `python -m tests.gpu.profilers --out DIR [--source DIR]`.

All ranks share one GPU under CUDA MPS, each posing as a host. `--source DIR` holds the public
sources of NCCL's plugins as DIR/RELEASE/inspector and DIR/RELEASE/example; they are built in a
temporary folder. Every piece is written to DIR/PIECE.json after each run, so a piece that was cut
off is there as far as it got. `ncclscope bench --from DIR/PIECE.json --plot page.html` makes tables
and figures of it on any machine. Needs numpy, duckdb and PyTorch; no network.

  calls      AllReduce, AllGather, ReduceScatter, Broadcast, AlltoAll, Send/Recv; 1 KiB and 32 MiB;
             cost in two rounds and times in one; with time left, more rounds in the end
  ddp, fsdp  DenseNet121 and a small GPT, with Flight Recorder and PyTorch's profiler as well
  near       the same cases on one host, with the library that --nccl names: it must allow two ranks
             on a GPU (2.30.7)
  near-large the same functions on one host, 1 GiB
  near-four  the same functions on one host, four ranks. With 32 MiB four ranks that share a GPU wait
             for each other's place on it for ever, without any plugin too, unless each takes few
             of its cores: NCCL_MAX_CTAS is 4
  two-by-two the same with two hosts of two ranks
  near-four-large, two-by-two-large
             four ranks on one host and on two, 1 GiB
  large      the same functions between two hosts, 1 GiB
  four       four ranks of four hosts
  four-large the same, AllReduce and AllGather of 1 GiB
  kill       ranks that end by SIGKILL; last and without MPS, which a killed client may break

`--cost` measures wall and CPU time alone, in as many rounds as time allows; pieces share it evenly.
`--coverage` makes all of `--calls` once below each profiler, however long they take, and writes
PIECE-200.json; `--without none,empty` leaves out what records nothing.

200 calls of 1 GiB between hosts take minutes below each profiler: `--coverage --case-s 75` with
NCCL_SOCKET_NTHREADS=2 and NCCL_NSOCKS_PERTHREAD=4, which halve that, and `--without` for some of
the profilers at a time.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ncclscope.bench.libraries import find_libraries
from ncclscope.bench.plan import Plan
from ncclscope.bench.profilers import comparison_files
from ncclscope.bench.profilers.profiler_table import NONE, Profiler
from ncclscope.bench.profilers.selection import AGAIN, ProfilerSelection, select_profilers
from ncclscope.bench.profilers.trials import (
    COST,
    KILL,
    TIMES,
    ProfilerTrial,
    TrialSettings,
    order_of_trials,
    run_trial,
)
from ncclscope.bench.rank_placement import placement_on_this_host
from ncclscope.bench.session import LaunchOptions
from ncclscope.bench.training import files as training_files
from ncclscope.bench.training.trials import TrainingSettings, TrainingTrial, train_once
from tests.gpu.mps import mps

OPERATIONS = ("allreduce", "allgather", "reducescatter", "broadcast", "alltoall", "sendrecv")
SIZES = (1 << 10, 32 << 20)
OWN = ("empty", "ncclscope-profile", "ncclscope-trace", "ncclscope-full")
TORCH = ("flight-recorder", "torch-profiler")
LARGE = (1 << 30,)


@dataclass(frozen=True)
class Calls:
    """Calls of one piece, where they run, and what is measured of them."""

    limit_s: int  # of ten minutes for everything
    ranks: int
    ranks_a_host: int | None  # None: each rank poses as a host, with PyTorch's library
    sizes: tuple[int, ...]
    kinds: tuple[str, ...] = (TIMES,)
    rounds: int = 1
    operations: tuple[str, ...] = OPERATIONS
    case_s: float = 0.25  # as many calls as fit, and no more than --calls


# In the order in which they run. What time is left in the end goes to more rounds of `calls`.
BENCH = {
    "calls": Calls(190, 2, None, SIZES, (COST, TIMES), 2),
    "near": Calls(150, 2, 2, SIZES, (COST, TIMES), 3),
    "near-large": Calls(110, 2, 2, LARGE, case_s=20.0),
    "near-four": Calls(90, 4, 4, SIZES),
    "near-four-large": Calls(190, 4, 4, LARGE, case_s=20.0),
    "two-by-two": Calls(110, 4, 2, SIZES),
    "two-by-two-large": Calls(170, 4, 2, LARGE, case_s=1.5),
    "large": Calls(170, 2, None, LARGE, case_s=1.5),
    "four": Calls(90, 4, None, SIZES),
    "four-large": Calls(120, 4, None, LARGE, operations=OPERATIONS[:2], case_s=2.5),
}
TRAINING = {"ddp": 290, "fsdp": 290}  # seconds; two rounds of eleven profilers, at 10 s each
KILL_S = 40
PIECES = (*BENCH, *TRAINING, "kill")
COST_CASE_S = 0.4  # with --cost: rounds tell more than calls
COVERAGE_CASE_S = 60.0  # with --coverage: 200 calls of 32 MiB fit, whatever runs on the machine
KILL_ROUNDS = 3
TIMEOUT_S = 25.0  # the longest that a rank may keep the others waiting
Deadline = Callable[[], bool]  # whether time is over


def deadline_in(seconds: float) -> Deadline:
    """Time is over after so many seconds from now."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


# ---- plugins of NVIDIA's, from source ----
def cuda_home() -> Path:
    """CUDA's toolkit."""
    return Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))


def build_plugin(source: Path, target: Path) -> bool:
    """Builds a plugin of NCCL's from all of its C++ files; whether that worked."""
    includes = [f"-I{source}", f"-I{source / 'nccl'}", f"-I{cuda_home() / 'include'}"]
    version = target.with_suffix(".version.cc")
    version.write_text('extern "C" const char* get_git_version_info() { return "public"; }\n')
    own = [version] if (source / "version.h").exists() else []
    sources = [path for path in sorted(source.glob("*.cc")) if path.name != "version.cc"]
    libraries = [f"-L{cuda_home() / 'lib64'}", "-lcudart", "-ldl", "-lpthread"]
    command = ["g++", "-std=c++17", "-O2", "-DNDEBUG", "-fPIC", "-shared", "-w", *includes]
    command += ["-DNCCL_INSPECTOR_ENABLE_WARN=0", "-o", target, *sources, *own, *libraries]
    built = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if built.returncode:
        print(f"cannot build {source}: {built.stderr[-1500:]}", file=sys.stderr, flush=True)
    return built.returncode == 0


def build_plugins(source: Path | None, folder: Path) -> dict[str, Path]:
    """Plugins that could be built, by kind and release."""
    plugins: dict[str, Path] = {}
    for kind, release in (("inspector", "2.28.9"), ("inspector", "2.30.7"), ("example", "2.28.9")):
        target = folder / f"{kind}-{release}.so"
        directory = source / release / kind if source else None
        if directory and directory.is_dir() and build_plugin(directory, target):
            plugins[f"{kind} {release}"] = target
    return plugins


def requests_of(plugins: dict[str, Path], own: tuple[str, ...]) -> list[str]:
    """What `--profiler` would be given. Inspector 2.30.7 records small operations, too."""
    requests = list(own)
    for name, path in plugins.items():
        setting = ",NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES=0" if name == "inspector 2.30.7" else ""
        requests.append(f"{name.split()[0]}={path}{setting}")
    return requests


def selection_of(
    plugins: dict[str, Path], own: tuple[str, ...], training: bool
) -> ProfilerSelection:
    """The profilers, with releases in the names of NVIDIA's."""
    selection = select_profilers(requests_of(plugins, own), os.environ, training)
    names = {str(path.resolve()): name for name, path in plugins.items()}
    profilers = [
        replace(
            profiler,
            name=names.get(profiler.variables.get("NCCL_PROFILER_PLUGIN", ""), profiler.name),
        )
        for profiler in selection.profilers
    ]
    return ProfilerSelection(tuple(profilers), selection.absent)


# ---- benchmark ----
class BenchPiece:
    """Trials of one plan, kept on disk after each."""

    def __init__(
        self, name: str, out: Path, selection: ProfilerSelection, plan: Plan, options: LaunchOptions
    ) -> None:
        self._path, self._selection = out / f"{name}.json", selection
        self._settings = TrialSettings(plan, options)
        self._trials: list[ProfilerTrial] = []
        self._rounds = 0
        self._began = time.time()

    def run(self, kinds: tuple[str, ...], rounds: int, over: Deadline) -> None:
        """Runs trials until all are done or time is over; rounds are numbered on."""
        profilers, seed = self._selection.profilers, self._rounds + 2
        without_any = next((own for own in profilers if own.name == NONE), None)
        if without_any and not self._rounds:
            failure = run_trial(without_any, kinds[0], 0, self._settings).failure
            if failure:
                print(f"{self._path.name}: not without any profiler: {failure}", file=sys.stderr)
                return
        for kind, number, profiler in order_of_trials(profilers, rounds, kinds, seed):
            if sum(bool(own.failure) for own in self._trials if own.profiler == profiler.name) > 1:
                continue  # it failed twice already, and may take its whole time limit again
            if over():
                print(f"{self._path.name}: time is over before {kind} {number}", file=sys.stderr)
                break
            self._add(
                run_trial(profiler, kind, number + self._rounds * (kind != TIMES), self._settings)
            )
        self._rounds += rounds

    def _add(self, trial: ProfilerTrial) -> None:
        self._trials.append(trial)
        stamp = time.strftime("%H:%M:%S")
        print(f"{stamp} {trial.profiler} {trial.kind} {trial.round} {trial.failure}{trial.problem}",
              file=sys.stderr, flush=True)  # fmt: skip
        if not self._settings.sessions:
            return
        run = comparison_files.ComparisonRun(
            comparison_files.machine_of(self._settings.sessions[0]),
            comparison_files.settings_of(self._settings.plan, max(self._rounds, 1)),
            self._selection.profilers,
            self._selection.absent,
            tuple(self._trials),
            self._began,
        )
        self._path.write_text(json.dumps(comparison_files.as_json(run, tables=False)))


def launch_options(
    ranks: int, simulate: bool, nccl: Path | None = None, ranks_a_host: int = 1
) -> LaunchOptions:
    """All ranks on one GPU, posing as hosts; several as one host need a library that allows it."""
    library = str(nccl) if nccl and not simulate else None
    libraries = find_libraries(library, None, simulate, os.environ)
    environment = {**os.environ, "NCCLSCOPE_SIM_DEVICES": str(ranks)}
    prefix: tuple[str, ...] = ()
    if nccl:
        environment |= {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
        environment |= {"NCCL_MAX_CTAS": "4"} if ranks > 2 else {}
        host = f'NCCL_HOSTID=host$((RANK / {ranks_a_host})) exec "$@"'
        prefix = ("sh", "-c", host, "sh")
    devices = {rank: rank if simulate else 0 for rank in range(ranks)}
    return LaunchOptions(
        libraries, placement_on_this_host(ranks), devices, not simulate, TIMEOUT_S, environment,
        prefix,
    )  # fmt: skip


def plan_of(
    operations: tuple[str, ...], sizes: tuple[int, ...], seconds: float, calls: int
) -> Plan:
    """As in the ncclsee paper: int32, out of place; large sizes as many calls as time allows."""
    return Plan(
        operations, sizes, ("int32",), places=("out-of-place",), calls=calls, seconds=seconds,
        warm_up=3, checks=0,
    )  # fmt: skip


# ---- training ----
def train(
    model: str, out: Path, selection: ProfilerSelection, settings: TrainingSettings, over: Deadline
) -> None:
    """Trains below each profiler, round by round, until time is over."""
    trials: list[TrainingTrial] = []
    began = time.time()
    for _, number, profiler in order_of_trials(selection.profilers, settings.rounds, (COST,)):
        if over():
            break
        trial = train_once(profiler, number, settings)
        trials.append(trial)
        stamp = time.strftime("%H:%M:%S")
        print(
            f"{stamp} {model} {trial.profiler} {number} {trial.failure}",
            file=sys.stderr,
            flush=True,
        )
        run = training_files.TrainingRun(
            training_files.settings_json(settings), selection.profilers, selection.absent,
            tuple(trials), began,
        )  # fmt: skip
        (out / f"{model}.json").write_text(json.dumps(training_files.as_json(run)))


def without(selection: ProfilerSelection, *names: str) -> ProfilerSelection:
    """The selection without some of its profilers."""
    kept: tuple[Profiler, ...] = tuple(
        profiler for profiler in selection.profilers if profiler.name not in names
    )
    return ProfilerSelection(kept, selection.absent)


@contextlib.contextmanager
def side_by_side(simulate: bool) -> Iterator[None]:
    """MPS, unless nothing runs on a GPU."""
    with contextlib.nullcontext() if simulate else mps():
        yield


def run_calls(
    piece: Calls,
    name: str,
    arguments: argparse.Namespace,
    selection: ProfilerSelection,
    over: Deadline,
) -> BenchPiece:
    """Runs one piece of the benchmark; with --cost its cost alone, in rounds until time is over."""
    nccl = arguments.nccl if piece.ranks_a_host else None
    options = launch_options(piece.ranks, arguments.simulate, nccl, piece.ranks_a_host or 1)
    case_s = COVERAGE_CASE_S if arguments.coverage else piece.case_s
    case_s = arguments.case_s or (COST_CASE_S if arguments.cost else case_s)
    plan = plan_of(piece.operations, piece.sizes, case_s, arguments.calls)
    plan = replace(plan, warm_up=1) if piece.sizes == LARGE else plan
    if arguments.coverage:
        bench = BenchPiece(f"{name}-200", arguments.out, without(selection, AGAIN), plan, options)
        bench.run((COST,), 1, over)
        return bench
    if arguments.cost:
        bench = BenchPiece(f"{name}-cost", arguments.out, selection, plan, options)
        while not over():
            bench.run((COST,), 1, over)
        return bench
    chosen = selection if COST in piece.kinds else without(selection, AGAIN)
    bench = BenchPiece(name, arguments.out, chosen, plan, options)
    bench.run(piece.kinds, piece.rounds, over)
    return bench


def main() -> int:
    """Runs the pieces in order, each within its time."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.profilers", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--source", type=Path, metavar="DIR", help="sources of NCCL's plugins")
    parser.add_argument("--nccl", type=Path, metavar="FILE", help="library of one-host pieces")
    parser.add_argument("--minutes", type=float, default=10, help="for everything (10)")
    parser.add_argument("--pieces", default=",".join(PIECES), help=f"of {', '.join(PIECES)}")
    parser.add_argument("--cost", action="store_true", help="cost alone, as PIECE-cost.json")
    parser.add_argument("--coverage", action="store_true", help="all calls, once: PIECE-200.json")
    parser.add_argument("--case-s", type=float, help="seconds for a function of a size, at most")
    parser.add_argument("--without", default="", help="profilers to leave out, comma-separated")
    parser.add_argument("--simulate", action="store_true", help="desk check: no GPU, no MPS")
    parser.add_argument("--calls", type=int, default=200)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    wanted = arguments.pieces.split(",")
    all_over = deadline_in(arguments.minutes * 60)
    scale = arguments.minutes / 10
    with tempfile.TemporaryDirectory() as folder:
        plugins = build_plugins(arguments.source, Path(folder))
        print(f"built: {', '.join(plugins) or 'nothing'}", file=sys.stderr, flush=True)
        selection = without(
            selection_of(plugins, OWN, training=False), *arguments.without.split(",")
        )
        shares = {name: BENCH[name].limit_s for name in BENCH if name in wanted}

        def limit(seconds: float) -> Deadline:
            own = deadline_in(seconds)
            return lambda: own() or all_over()

        with side_by_side(arguments.simulate):
            calls = None
            for name, share_s in shares.items():
                if BENCH[name].ranks_a_host and not arguments.nccl:
                    continue
                even_s = arguments.minutes * 60 / len(shares)
                over = limit(even_s if arguments.cost else share_s * scale)
                over = all_over if arguments.coverage else over
                bench = run_calls(BENCH[name], name, arguments, selection, over)
                calls = bench if name == "calls" else calls
            train_models(arguments, plugins, wanted, lambda piece: limit(TRAINING[piece] * scale))
            reserved_s = KILL_S * scale if "kill" in wanted else 0
            spent_s = time.monotonic() - BEGAN
            left = deadline_in(arguments.minutes * 60 - reserved_s - spent_s)
            while calls and not arguments.coverage and not left():
                calls.run((COST,), 1, left)
        if "kill" in wanted:
            plan = plan_of(("allreduce", "allgather"), SIZES[:1], 2, min(arguments.calls, 50))
            options = launch_options(2, arguments.simulate)  # not those of MPS
            bench = BenchPiece("kill", arguments.out, without(selection, AGAIN), plan, options)
            for _ in range(KILL_ROUNDS):
                bench.run((KILL,), 1, all_over)
    return 0


def train_models(
    arguments: argparse.Namespace,
    plugins: dict[str, Path],
    wanted: list[str],
    limit: Callable[[str], Deadline],
) -> None:
    """DenseNet121 and the GPT, below PyTorch's own profilers as well."""
    selection = without(
        selection_of(plugins, (*OWN, *TORCH), training=True), *arguments.without.split(",")
    )
    for piece, model in (("ddp", "densenet121"), ("fsdp", "gpt")):
        if piece in wanted and not arguments.simulate:
            settings = TrainingSettings(
                model, 2, 1, steps=20, warm_up=5, rounds=6, share=True, timeout_s=45
            )
            train(model, arguments.out, selection, settings, limit(piece))


BEGAN = time.monotonic()
if __name__ == "__main__":
    sys.exit(main())
