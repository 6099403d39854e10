"""One rank of a torch.distributed job on a shared GPU that pushes NVTX ranges around its calls."""

import json
import os
import statistics
import time
from datetime import timedelta

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
os.environ.update(NCCL_HOSTID=f"host{rank}", NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1")

import torch  # noqa: E402 - NCCL reads its variables when it is loaded
import torch.distributed as dist  # noqa: E402

STEPS = int(os.environ.get("STEPS", "200"))

torch.cuda.set_device(0)
torch.cuda.nvtx.range_push("whole job")
dist.init_process_group("nccl", device_id=torch.device("cuda:0"), timeout=timedelta(seconds=60))
half = dist.new_group(list(range(world)))  # by ncclCommSplit, where PyTorch does that
tensor = torch.ones(1 << 16, device="cuda")
gathered = torch.empty(world << 16, device="cuda")
times = []
for step in range(STEPS):
    before = time.perf_counter()
    torch.cuda.nvtx.range_push(f"step {step}")
    torch.cuda.nvtx.range_push("forward")
    dist.all_gather_into_tensor(gathered, tensor, group=half)
    torch.cuda.nvtx.range_pop()
    torch.cuda.nvtx.range_push("backward")
    dist.all_reduce(tensor)
    dist.reduce_scatter_tensor(tensor, gathered)
    torch.cuda.nvtx.range_pop()
    torch.cuda.nvtx.range_pop()
    torch.cuda.synchronize()
    times.append(time.perf_counter() - before)
torch.cuda.nvtx.range_pop()
print(json.dumps({"rank": rank, "median_us": statistics.median(times[10:]) * 1e6}), flush=True)
dist.destroy_process_group()
