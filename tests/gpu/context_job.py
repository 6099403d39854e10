"""One rank of a training job on a shared GPU: `context_job.py ddp|fsdp2|tp|compile|checkpoint|…`.

Prints its median step as JSON. Nothing in it knows of ncclscope. In `sized` and `graph` the number
of elements of a call says what it is: 4096 * (layer + 1), and one more in backward.
"""

import json
import os
import statistics
import sys
import time
from datetime import timedelta
from typing import Any

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


class ReduceBothWays(torch.autograd.Function):
    """An AllReduce in forward and one in backward, as tensor parallelism has them."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: int) -> torch.Tensor:
        ctx.layer = layer
        dist.all_reduce(torch.ones(4096 * (layer + 1), device="cuda"))
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        dist.all_reduce(torch.ones(4096 * (ctx.layer + 1) + 1, device="cuda"))
        return gradients[0], None


class SizedBlock(Block):
    """A block whose calls have sizes that no other block's have."""

    def __init__(self, layer: int) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ReduceBothWays.apply(super().forward(x), self.layer)


def wrapped() -> nn.Module:
    """The model as the kind of job has it."""
    model: nn.Module = Model().cuda()
    if KIND in ("sized", "graph"):
        blocks: list[nn.Module] = [SizedBlock(layer) for layer in range(LAYERS)]
        model.layers = nn.ModuleList(blocks).cuda()
        return model
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


class Pipeline:
    """Two stages under Schedule1F1B; stands for model, loss and backward."""

    def __init__(self) -> None:
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B

        blocks: list[nn.Module] = [Block() for _ in range(LAYERS)]
        self.module = nn.Sequential(*blocks).cuda()
        stage = PipelineStage(self.module, rank, world, torch.device("cuda:0"))
        self.schedule = Schedule1F1B(stage, 4, loss_fn=nn.functional.mse_loss)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if rank == 0:
            self.schedule.step(x)
        else:
            self.schedule.step(target=torch.zeros_like(x))
        return torch.zeros(1)


class Graphed:
    """Forward and backward from a CUDA graph. Some passes before it are eager, as CUDA asks."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.graph = model, torch.cuda.CUDAGraph()
        self.x = torch.zeros(8, WIDTH, device="cuda")
        self.y = torch.zeros(8, dtype=torch.long, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(5):
                self.run()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph):
            self.loss = self.run()

    def run(self) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self.model(self.x), self.y)
        loss.backward()
        return loss

    def step(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.x.copy_(x)
        self.y.copy_(y)
        self.graph.replay()
        return self.loss


class Eager:
    """Forward and backward as they come."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def step(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        return loss


torch.cuda.set_device(0)
dist.init_process_group("nccl", device_id=torch.device("cuda:0"), timeout=timedelta(seconds=120))
if KIND == "pipeline":
    loop: Pipeline | Graphed | Eager = Pipeline()
    parameters = loop.module.parameters()
else:
    model = wrapped()
    parameters = model.parameters()
    loop = Graphed(model) if KIND == "graph" else Eager(model)
optimizer = torch.optim.AdamW(parameters)
data = TensorDataset(torch.randn(STEPS * 8, WIDTH), torch.randint(0, 10, (STEPS * 8,)))
lengths, began = [], time.perf_counter()
for x, y in DataLoader(data, batch_size=8):
    loss = loop.step(x.cuda(), y.cuda())
    optimizer.step()
    if KIND != "graph":  # its gradients stay where the graph has them
        optimizer.zero_grad()
    torch.cuda.synchronize()
    lengths.append(time.perf_counter() - began)
    began = time.perf_counter()
answer = {"rank": rank, "median_us": statistics.median(lengths[5:]) * 1e6, "loss": loss.item()}
print(json.dumps(answer), flush=True)
if isinstance(loop, Graphed):  # NCCL's destroy waits for graphs that hold its calls
    loop.graph.reset()
dist.destroy_process_group()
