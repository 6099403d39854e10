"""One rank of a small training job, which prints its median step: `training_job.py ddp|fsdp`.

ddp: DenseNet-like convolutions under DistributedDataParallel, with a metric reduced in a second
group at every step. fsdp: a small GPT under FSDP2. STEPS says how many steps are measured.
"""

import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch import nn

from ncclscope.bench.training.models import Gpt

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STEPS, WARM_UP = int(os.environ.get("STEPS", "60")), 10
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
if sys.argv[1] == "ddp":
    step = ddp_step
    model: nn.Module = nn.parallel.DistributedDataParallel(convolutions().cuda(), bucket_cap_mb=1)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), 0.1)
else:
    from torch.distributed.fsdp import fully_shard

    step = fsdp_step
    gpt = Gpt(LAYERS)
    model = gpt.cuda()
    for part in (*gpt.blocks, model):
        fully_shard(part)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
times_ms = []
for _ in range(WARM_UP + STEPS):
    begun = time.perf_counter()
    step()
    torch.cuda.synchronize()
    times_ms.append((time.perf_counter() - begun) * 1e3)
dist.barrier()
print(json.dumps({"rank": RANK, "median_ms": statistics.median(times_ms[WARM_UP:])}), flush=True)
dist.destroy_process_group()
