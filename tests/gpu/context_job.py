"""One rank of a training job on a shared GPU: `context_job.py ddp|fsdp2|tp|compile|checkpoint`.

Prints its median step as JSON. Nothing in it knows of ncclscope.
"""

import json
import os
import statistics
import sys
import time
from datetime import timedelta

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
os.environ.update(NCCL_HOSTID=f"host{rank}", NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1")

import torch  # noqa: E402 - NCCL reads its variables when it is loaded
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

KIND, STEPS, WIDTH, LAYERS = sys.argv[1], 40, 512, 4


class Block(nn.Module):
    """Two linear layers around a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    """Some blocks and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            again = KIND == "checkpoint"
            x = checkpoint(layer, x, use_reentrant=False) if again else layer(x)
        return self.head(x)


def wrapped() -> nn.Module:
    """The model as the kind of job has it."""
    model: nn.Module = Model().cuda()
    if KIND in ("ddp", "compile"):
        model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=4)
        return torch.compile(model, backend="aot_eager") if KIND == "compile" else model
    from torch.distributed.fsdp import fully_shard

    mesh = None
    if KIND == "tp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )

        mesh = init_device_mesh("cuda", (world // 2, 2), mesh_dim_names=("dp", "tp"))
        for layer in model.layers:  # type: ignore[union-attr]
            plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
            parallelize_module(layer, mesh["tp"], plan)
    options = {} if mesh is None else {"mesh": mesh["dp"]}
    for layer in model.layers:  # type: ignore[union-attr]
        fully_shard(layer, **options)
    return fully_shard(model, **options)


torch.cuda.set_device(0)
dist.init_process_group("nccl", device_id=torch.device("cuda:0"), timeout=timedelta(seconds=120))
model = wrapped()
optimizer = torch.optim.AdamW(model.parameters())
data = TensorDataset(torch.randn(STEPS * 8, WIDTH), torch.randint(0, 10, (STEPS * 8,)))
lengths, began = [], time.perf_counter()
for x, y in DataLoader(data, batch_size=8):
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
    lengths.append(time.perf_counter() - began)
    began = time.perf_counter()
answer = {"rank": rank, "median_us": statistics.median(lengths[5:]) * 1e6, "loss": loss.item()}
print(json.dumps(answer), flush=True)
dist.destroy_process_group()
