"""FSDP2: `torchrun --nproc-per-node 2 examples/fsdp2.py`."""

import torch.distributed as dist
from common import Model, begin, train
from torch.distributed.fsdp import fully_shard

device = begin()
model = Model().to(device)
for layer in model.layers:
    fully_shard(layer)
fully_shard(model)
train(model, device)
dist.destroy_process_group()
