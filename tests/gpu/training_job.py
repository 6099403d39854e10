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
from torch import Tensor, nn

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STEPS, WARM_UP = int(os.environ.get("STEPS", "60")), 10
WIDTH, HEADS, LAYERS, VOCABULARY, LENGTH, BATCH = 512, 8, 4, 4096, 256, 4


class Block(nn.Module):
    """Attention and a feed-forward layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape

        def heads(part: Tensor) -> Tensor:
            return part.view(batch, length, HEADS, -1).transpose(1, 2)

        q, k, v = map(heads, self.qkv(self.norm1(x)).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, -1))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """A small language model."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


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
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1), device="cuda")
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
    model = Gpt().cuda()
    for part in (*model.blocks, model):
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
