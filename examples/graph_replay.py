"""Tensor-parallel inference from a CUDA graph, as vLLM decodes: an AllReduce behind each block.

`torchrun --nproc-per-node 2 examples/graph_replay.py`. Without a GPU there are no graphs: the same
calls are made one by one.
"""

import torch
import torch.distributed as dist
from common import STEPS, begin
from torch import nn

WIDTH, DEPTH, BATCH = 1024, 8, 8

device = begin()
part = 4 * WIDTH // dist.get_world_size()  # of the hidden width that this rank holds
blocks = nn.ModuleList(
    nn.Sequential(nn.Linear(WIDTH, part), nn.ReLU(), nn.Linear(part, WIDTH)) for _ in range(DEPTH)
).to(device)
x = torch.randn(BATCH, WIDTH, device=device)


@torch.inference_mode()
def decode() -> torch.Tensor:
    """One step of decoding."""
    y = x
    for block in blocks:
        partial = block(y)
        dist.all_reduce(partial)
        y = y + partial
    return y


decode()  # makes the communicator
if device.type == "cuda":
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decode()
    for _ in range(STEPS):
        graph.replay()
    torch.cuda.synchronize()
    graph.reset()  # or destroying the communicator waits for it for ever
else:
    for _ in range(STEPS):
        decode()
dist.destroy_process_group()
