"""Tensor and data parallelism: `torchrun --nproc-per-node 4 examples/tensor_parallel.py`."""

import torch.distributed as dist
from common import Model, begin, train
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

device = begin()
ranks = dist.get_world_size()
mesh = init_device_mesh(device.type, (ranks // 2, 2), mesh_dim_names=("dp", "tp"))
model = Model().to(device)
for layer in model.layers:
    parallelize_module(layer, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(layer, mesh=mesh["dp"])
fully_shard(model, mesh=mesh["dp"])
train(model, device)
dist.destroy_process_group()
