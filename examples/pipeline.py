"""Pipeline parallelism, one stage a rank: `torchrun --nproc-per-node 2 examples/pipeline.py`."""

import torch
import torch.distributed as dist
from common import STEPS, Block, begin
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

WIDTH, BATCH, MICROBATCHES = 256, 16, 4

device = begin()
rank, ranks = dist.get_rank(), dist.get_world_size()
blocks: list[nn.Module] = [Block(WIDTH) for _ in range(4)]
module = nn.Sequential(*blocks).to(device)
stage = PipelineStage(module, rank, ranks, device)
schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.AdamW(module.parameters())
target = torch.zeros(BATCH, WIDTH, device=device)
for _ in range(STEPS):
    if rank == 0:
        schedule.step(torch.randn(BATCH, WIDTH, device=device))
    elif rank == ranks - 1:
        schedule.step(target=target)
    else:
        schedule.step()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
