"""One rank of a small training job in blocks of steps: `training_job.py JOB PLUGIN`.

JOB ddp: convolutions under DistributedDataParallel in many small buckets, with a metric reduced in a
second group at every step. densenet121: DenseNet121 likewise, in DDP's own buckets. fsdp: a small
GPT under FSDP2. fsdp-tp: the same on a mesh of two dimensions, its feed-forward layers
tensor-parallel over the second.

PLUGIN is masking_plugin.c's. In one block of three NCCL's events are on and what ncclscope replaced
in PyTorch is in place; in the other two neither is: these show what the method itself makes of no
difference. PAIRS says how many times three. Prints the median step of each block, in ms.
"""

import ctypes
import json
import os
import random
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch import nn

from ncclscope.bench.training.models import Gpt, densenet121

JOB, PLUGIN = sys.argv[1:]
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PAIRS, WARM_UP = int(os.environ.get("PAIRS", "40")), 20
STEPS = int(os.environ.get("STEPS", "2"))
LAYERS, LENGTH, BATCH = 4, 256, 4


def convolutions() -> nn.Module:
    """Many small layers, so that DDP has many buckets to reduce."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (64,) * 8 + (128,) * 8 + (256,) * 8:
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def ddp_step() -> None:
    images = torch.randn(16, 3, 32, 32, device="cuda")
    labels = torch.randint(0, 10, (16,), device="cuda")
    loss = functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dist.all_reduce(loss.detach().clone(), group=metrics)


def fsdp_step() -> None:
    tokens = torch.randint(0, gpt.words, (BATCH, LENGTH + 1), device="cuda")
    scores = model(tokens[:, :-1]).flatten(0, 1)
    functional.cross_entropy(scores, tokens[:, 1:].flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()


torch.cuda.set_device(0)
torch.manual_seed(0)
dist.init_process_group("nccl", device_id=torch.device("cuda:0"))
metrics = dist.new_group(list(range(WORLD)), group_desc="metrics")
if JOB in ("ddp", "densenet121"):
    step = ddp_step
    network = convolutions() if JOB == "ddp" else densenet121(classes=10)
    bucket_mb = 1 if JOB == "ddp" else 25  # 25 is DDP's own
    model: nn.Module = nn.parallel.DistributedDataParallel(network.cuda(), bucket_cap_mb=bucket_mb)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), 0.1)
else:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    step = fsdp_step
    gpt = Gpt(LAYERS)
    model = gpt.cuda()
    sharded: dict[str, object] = {}
    if JOB == "fsdp-tp":
        mesh = init_device_mesh("cuda", (2, WORLD // 2), mesh_dim_names=("dp", "tp"))
        sharded = {"mesh": mesh["dp"]}
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        for block in gpt.blocks:
            parallelize_module(block, mesh["tp"], plan)
    for part in (*gpt.blocks, model):
        fully_shard(part, **sharded)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)


class Recording:
    """Switches the recorder and its part in PyTorch on and off, between steps."""

    def __init__(self, plugin: str) -> None:
        self._plugin = ctypes.CDLL(plugin)
        self._attached_engine = torch.autograd.Variable._execution_engine
        if type(self._attached_engine).__name__ != "_NcclscopeEngine":
            raise SystemExit("ncclscope is not attached to PyTorch")
        own = vars(torch.autograd.profiler.record_function)
        self._attached = {name: own[name] for name in ("__enter__", "__exit__")}

    def switch(self, on: bool) -> None:
        """All of it."""
        self._plugin.masking_plugin_set(int(on))
        engine = self._attached_engine
        torch.autograd.Variable._execution_engine = engine if on else engine._inner
        for name, attached in self._attached.items():
            method = attached if on else attached.__wrapped__
            setattr(torch.autograd.profiler.record_function, name, method)


def step_ms() -> float:
    begun = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) * 1e3


for _ in range(WARM_UP):
    step_ms()
recording = Recording(PLUGIN)
blocks_ms: dict[str, list[float]] = {"on": [], "off": [], "off again": []}
chance = random.Random(1)  # the same order on all ranks
for _ in range(PAIRS):
    for state in chance.sample(sorted(blocks_ms), 3):
        recording.switch(state == "on")
        step_ms()  # the first step after a switch belongs to neither
        blocks_ms[state].append(statistics.median(step_ms() for _ in range(STEPS)))
recording.switch(True)
dist.barrier()
print(json.dumps({"rank": RANK, **blocks_ms}), flush=True)
dist.destroy_process_group()
