"""DistributedDataParallel: `torchrun --nproc-per-node 2 examples/ddp.py`."""

import torch.distributed as dist
from common import Model, begin, train
from torch.nn.parallel import DistributedDataParallel

device = begin()
train(DistributedDataParallel(Model().to(device)), device)
dist.destroy_process_group()
