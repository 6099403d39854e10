"""Runs a training job once below each profiler, round by round, on this host."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ncclscope.bench.profilers.profiler_table import NONE, Profiler
from ncclscope.bench.profilers.recording import Records, read_recording, records_from_json
from ncclscope.bench.profilers.selection import AGAIN
from ncclscope.bench.profilers.trials import (
    COST,
    order_of_trials,
    output_folder,
    own_variables_removed,
    placed_in,
)
from ncclscope.bench.ranks import exit_cause, sharing_variables
from ncclscope.bench.results import BenchDevice
from ncclscope.errors import NcclscopeError

MODELS = ("densenet121", "gpt")
_LAYERS = {"densenet121": (6, 12, 24, 16), "gpt": (4,)}
_LAST_LINES = 12
_END_S = 5.0
COUNTING = "empty"  # the plugin that counts the calls that NCCL reports


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """What is trained, where, and how often."""

    model: str
    ranks: int
    devices: int  # GPUs of this host; 0: none
    steps: int = 40
    warm_up: int = 10
    batch: int = 16
    image: int = 64
    length: int = 256
    layers: tuple[int, ...] = ()  # (): the model's own
    rounds: int = 3
    share: bool = False
    timeout_s: float = 300.0
    output: Path | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)


@dataclass(frozen=True, slots=True)
class TrainingTrial:
    """One training run below one profiler."""

    profiler: str
    round: int
    step_ns: tuple[tuple[int, ...], ...] = ()  # by rank, behind the warm-up
    cpu_ns: tuple[int, ...] = ()  # of all steps, warm-up included
    window_steps: int = 0  # last steps that alone are recorded; 0: start, warm-up and all steps
    records: tuple[Records, ...] = ()
    counted: tuple[int, ...] = ()  # calls by rank, of the plugin that counts them
    bytes_written: int = 0
    failure: str = ""
    problem: str = ""
    machine: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The trial as a JSON object."""
        return asdict(self)


def training_trial_from_json(content: Mapping[str, Any]) -> TrainingTrial:
    """The trial that `as_json` gave."""
    values: dict[str, Any] = {
        **content,
        "step_ns": tuple(map(tuple, content["step_ns"])),
        "cpu_ns": tuple(content["cpu_ns"]),
        "counted": tuple(content["counted"]),
        "records": tuple(map(records_from_json, content["records"])),
    }
    values.pop("recorded_ns", None)  # of files that older releases wrote
    return TrainingTrial(**values)


def run_training(
    profilers: Sequence[Profiler],
    settings: TrainingSettings,
    on_trial: Callable[[TrainingTrial], None],
) -> None:
    """Trains below each profiler in each round, in random order."""
    for _, number, profiler in order_of_trials(profilers, settings.rounds, (COST,)):
        on_trial(train_once(profiler, number, settings))


def train_once(profiler: Profiler, number: int, settings: TrainingSettings) -> TrainingTrial:
    """Trains once below a profiler, and reads what that recorded."""
    with output_folder(settings.output, f"{profiler.name}-{settings.model}-{number}") as output:
        results = [output / f"result-{rank}" for rank in range(settings.ranks)]
        counts = output / "counts"
        if profiler.name == COUNTING:
            counts.mkdir()
            variables = {**profiler.variables, "NCCLSCOPE_EMPTY_COUNTS": str(counts)}
            profiler = replace(profiler, variables=variables)
        failure = _run_ranks(profiler, settings, output, results)
        answers = [json.loads(path.read_text()) for path in results if path.is_file()]
        for path in results:
            path.unlink(missing_ok=True)  # no file of the profiler's
        if failure or len(answers) < settings.ranks:
            return TrainingTrial(profiler.name, number, failure=failure or "a rank left no times")
        devices = [
            BenchDevice(
                own["rank"], socket.gethostname(), own["pid"], 0, own["device"], "", "", 0, 0
            )
            for own in answers
        ]
        recording = read_recording(profiler, output, devices)
        return TrainingTrial(
            profiler.name,
            number,
            tuple(tuple(own["step_ns"]) for own in answers),
            tuple(own["cpu_ns"] for own in answers),
            answers[0]["window_steps"],
            recording.records,
            tuple(_counted(counts, own["pid"]) for own in answers) if counts.is_dir() else (),
            recording.bytes_written,
            problem=recording.problem,
            machine={name: answers[0][name] for name in ("backend", "device", "torch", "nccl")},
        )


def _counted(folder: Path, pid: int) -> int:
    """The calls that the counting plugin saw in a process."""
    path = folder / str(pid)
    return int.from_bytes(path.read_bytes(), sys.byteorder) if path.is_file() else 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _run_ranks(
    profiler: Profiler, settings: TrainingSettings, output: Path, results: Sequence[Path]
) -> str:
    """Runs all ranks to their end; returns what went wrong, or ""."""
    port, processes = _free_port(), []
    log = output.parent / f"{output.name}.log"
    config = {
        "model": settings.model,
        "steps": settings.steps,
        "warm_up": settings.warm_up,
        "batch": settings.batch,
        "image": settings.image,
        "length": settings.length,
        "layers": list(settings.layers or _LAYERS[settings.model]),
    }
    with log.open("wb") as written:
        for rank, result in enumerate(results):
            words = json.dumps({**config, "result": str(result)})
            command = [sys.executable, "-m", "ncclscope.bench.training.job", words]
            processes.append(
                subprocess.Popen(
                    [*(placed_in(word, output) for word in profiler.prefix), *command],
                    env=_rank_environment(profiler, settings, output, rank, port),
                    stdin=subprocess.DEVNULL,
                    stdout=written,
                    stderr=subprocess.STDOUT,
                )
            )
        failure = _wait(processes, settings.timeout_s)
    text = log.read_bytes()[-4000:].decode(errors="replace")
    log.unlink()
    lines = "\n".join(text.splitlines()[-_LAST_LINES:])
    return f"{failure}\n{lines}" if failure else ""


def _rank_environment(
    profiler: Profiler, settings: TrainingSettings, output: Path, rank: int, port: int
) -> dict[str, str]:
    environment = own_variables_removed(settings.environment)
    environment |= sharing_variables(rank, environment) if settings.share else {}
    environment |= {name: placed_in(value, output) for name, value in profiler.variables.items()}
    device = rank % settings.devices if settings.devices else rank
    return environment | {
        "RANK": str(rank),
        "LOCAL_RANK": str(device),  # PyTorch takes it for the number of the GPU
        "WORLD_SIZE": str(settings.ranks),
        "LOCAL_WORLD_SIZE": str(settings.ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "NCCLSCOPE_BENCH_TRAINING_DEVICE": str(device),
        "OMP_NUM_THREADS": environment.get("OMP_NUM_THREADS", "1"),
    }


def _wait(processes: Sequence["subprocess.Popen[bytes]"], timeout_s: float) -> str:
    """Waits for all ranks; ends the others when one fails. Returns what went wrong, or ""."""
    until, failure = time.monotonic() + timeout_s, ""
    while not failure and any(process.poll() is None for process in processes):
        time.sleep(0.05)
        codes = [process.poll() for process in processes]
        failed = next((rank for rank, code in enumerate(codes) if code not in (None, 0)), None)
        if failed is not None:
            failure = f"rank {failed} {exit_cause(codes[failed])}"
        elif time.monotonic() > until:
            failure = f"training did not end within {timeout_s:g} s"
    for process in processes:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    codes = [process.returncode for process in processes]
    if not failure and any(codes):
        failed = next(rank for rank, code in enumerate(codes) if code)
        failure = f"rank {failed} {exit_cause(codes[failed])}"
    return failure


def visible_gpus() -> int:
    """Number of GPUs that PyTorch sees, counted in another process."""
    code = "import torch; print(torch.cuda.device_count())"
    counted = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    return int(counted.stdout) if counted.returncode == 0 else 0


def check_torch() -> None:
    """Raises if PyTorch is not installed."""
    if importlib.util.find_spec("torch") is None:
        message = "cannot train: PyTorch is not installed"
        raise NcclscopeError(message, "Install it: pip install torch")


def without_plugin(
    trials: Sequence[TrainingTrial], profiler: str
) -> dict[int, list[TrainingTrial]]:
    """The runs without a plugin that a profiler's are compared with, by round. The second of a
    round is compared with the first alone.
    """
    names = (NONE,) if profiler == AGAIN else (NONE, AGAIN)
    rounds: dict[int, list[TrainingTrial]] = {}
    for trial in trials:
        if trial.profiler in names and not trial.failure:
            rounds.setdefault(trial.round, []).append(trial)
    return rounds
