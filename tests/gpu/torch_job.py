"""One rank of a torch.distributed job on a shared GPU, which says how often it called what."""

import json
import os
from datetime import timedelta

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
os.environ.update(NCCL_HOSTID=f"host{rank}", NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1")

import torch  # noqa: E402 - NCCL reads its variables when it is loaded
import torch.distributed as dist  # noqa: E402

torch.cuda.set_device(0)
dist.init_process_group("nccl", device_id=torch.device("cuda:0"), timeout=timedelta(seconds=60))
tensor = torch.ones(1 << 16, device="cuda")
gathered = torch.empty(world << 16, device="cuda")
CALLS = {"AllReduce": 200, "AllGather": 100, "ReduceScatter": 100, "Send": 50, "Recv": 50}
for _ in range(CALLS["AllReduce"]):
    dist.all_reduce(tensor)
for _ in range(CALLS["AllGather"]):
    dist.all_gather_into_tensor(gathered, tensor)
for _ in range(CALLS["ReduceScatter"]):
    dist.reduce_scatter_tensor(tensor, gathered)
for _ in range(CALLS["Send"]):
    ring = [
        dist.P2POp(dist.isend, tensor, (rank + 1) % world),
        dist.P2POp(dist.irecv, gathered[: 1 << 16], (rank - 1) % world),
    ]
    for request in dist.batch_isend_irecv(ring):
        request.wait()
torch.cuda.synchronize()
print(json.dumps({"rank": rank, "calls": CALLS}), flush=True)
dist.destroy_process_group()
