"""One rank of a training job: `python -m ncclscope.bench.training.job '{"model": …}'`.

densenet121 trains under DistributedDataParallel, gpt under FSDP2, both on synthetic data. The times
of steps go to the file `result`. The backend is NCCL; gloo where there is no GPU, which makes no
NCCL calls; or the one that NCCLSCOPE_BENCH_TRAINING_BACKEND=MODULE:NAME says.
"""

import contextlib
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as functional

from ncclscope.bench.training import models
from ncclscope.bench.training.fsdp2 import find_fully_shard

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
_WINDOW_STEPS = 5  # that PyTorch's profiler records, the last ones


@dataclass(frozen=True)
class JobConfig:
    """What is trained."""

    model: str
    steps: int
    warm_up: int
    batch: int
    image: int  # pixels of a side
    length: int  # tokens of a sequence
    layers: tuple[int, ...]  # of DenseNet's blocks; of the GPT, the first
    result: str


def _backend() -> str:
    other = os.environ.get("NCCLSCOPE_BENCH_TRAINING_BACKEND", "")
    if other:
        module, _, name = other.partition(":")
        importlib.import_module(module)
        return name
    return "nccl" if torch.cuda.is_available() else "gloo"


def _step_function(config: JobConfig, device: Any) -> Callable[[], None]:
    """One step: forward, backward, optimizer."""
    if config.model == "densenet121":
        model = models.densenet121(tuple(config.layers)).to(device)
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(wrapped.parameters(), 0.01)
        images = torch.randn(config.batch, 3, config.image, config.image, device=device)
        labels = torch.randint(0, 1000, (config.batch,), device=device)

        def loss() -> Any:
            return functional.cross_entropy(wrapped(images), labels)

    else:
        fully_shard = find_fully_shard()
        gpt = models.Gpt(config.layers[0]).to(device)
        for part in (*gpt.blocks, gpt):
            fully_shard(part)
        optimizer = torch.optim.AdamW(gpt.parameters(), 1e-3)
        tokens = torch.randint(0, gpt.words, (config.batch, config.length + 1), device=device)

        def loss() -> Any:
            return functional.cross_entropy(
                gpt(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
            )

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


@contextlib.contextmanager
def _torch_profiler() -> Iterator[None]:
    """PyTorch's profiler, where it is the one to be measured."""
    folder = os.environ.get("NCCLSCOPE_BENCH_TRAINING_PROFILER")
    if not folder:
        yield
        return
    with torch.profiler.profile() as profile:
        yield
    profile.export_chrome_trace(f"{folder}/rank{RANK}.json")


def _dump_flight_recorder() -> None:
    folder = os.environ.get("NCCLSCOPE_BENCH_TRAINING_FLIGHT_RECORDER")
    if folder and dist.get_backend() == "nccl":
        c10d: Any = importlib.import_module("torch._C._distributed_c10d")
        Path(folder, f"flight_recorder_{RANK}").write_bytes(c10d._dump_nccl_trace())


def _all_steps(config: JobConfig, step: Callable[[], None]) -> list[int]:
    """Times of all steps, warm-up included, each awaited."""
    times_ns = []

    def timed_step() -> None:
        began_ns = time.perf_counter_ns()
        step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times_ns.append(time.perf_counter_ns() - began_ns)

    window = min(_WINDOW_STEPS, config.steps)
    for _ in range(config.warm_up + config.steps - window):
        timed_step()
    with _torch_profiler():
        for _ in range(window):
            timed_step()
    return times_ns


def _recorded_window(config: JobConfig) -> int:
    """The number of last steps that a profiler records; 0: it records the whole run."""
    profiles = "NCCLSCOPE_BENCH_TRAINING_PROFILER" in os.environ
    return min(_WINDOW_STEPS, config.steps) if profiles else 0


def main(text: str) -> None:
    """Trains, and writes the times of steps."""
    config = JobConfig(**json.loads(text))
    torch.manual_seed(0)
    device = torch.device("cpu")
    if torch.cuda.is_available():
        number = int(os.environ.get("NCCLSCOPE_BENCH_TRAINING_DEVICE", "0"))
        device = torch.device(f"cuda:{number}")
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    backend = _backend()
    dist.init_process_group(backend, device_id=device if backend == "nccl" else None)
    step = _step_function(config, device)
    began_cpu_ns = time.process_time_ns()
    times_ns = _all_steps(config, step)
    cpu_ns = time.process_time_ns() - began_cpu_ns
    _dump_flight_recorder()
    result = {
        "rank": RANK,
        "pid": os.getpid(),
        "backend": backend,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "no GPU",
        "torch": torch.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if backend == "nccl" else "",
        "step_ns": times_ns[config.warm_up :],
        "cpu_ns": cpu_ns,
        "window_steps": _recorded_window(config),
    }
    Path(config.result).write_text(json.dumps(result))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
