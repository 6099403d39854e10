"""`run --system` on a real GPU: which counters NVML gives there, and ranks_of GPU it is.

Needs PyTorch and nvidia-ml-py.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from ncclscope.diagnose.hardware.samples import HardwareSamples, known_values, rates_per_s
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.model.build import open_model
from ncclscope.system.counters import COUNTERS, GPU, TOTAL

RANKS = 2  # of a communicator of one rank NCCL says nothing
_JOB = """
import os, time
rank = os.environ["RANK"]
os.environ.update(NCCL_HOSTID=f"host{rank}", NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1")
import torch, torch.distributed as dist
torch.cuda.set_device(0)
dist.init_process_group("nccl", device_id=torch.device("cuda:0"))
one = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
small = torch.ones(1 << 16, device="cuda")
until = time.monotonic() + 10
going = torch.ones(1, device="cuda")
while going.item():
    for _ in range(50):
        two = one @ one
    one.cpu()
    dist.all_reduce(small)
    going.fill_(float(time.monotonic() < until))
    dist.broadcast(going, 0)
dist.destroy_process_group()
"""


def sample_busy_gpu() -> tuple[list[tuple[str, str, str]], bool]:
    """By counter its median and what it is, and whether what must be there is plausible."""
    with tempfile.TemporaryDirectory() as directory:
        capture, job = Path(directory) / "c", Path(directory) / "job.py"
        job.write_text(_JOB)
        run = [sys.executable, "-m", "ncclscope", "run", "--system", "--system-interval", "0.5"]
        ranks = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={RANKS}"]
        subprocess.run([*run, "-o", capture, "--", *ranks, job], check=True)
        samples = HardwareSamples(RuleContext(open_model(capture)))
        ranks_of = samples.ranks_of
        place = next(place for place, ranks in ranks_of.items() if ranks == tuple(range(RANKS)))
        medians, rows = {}, []
        for counter in COUNTERS[GPU]:
            series = samples.series(GPU, counter.name).get(place)
            values = rates_per_s(series) if counter.kind == TOTAL else known_values(series)
            text = "not there"
            if len(values):
                medians[counter.name] = float(np.median(values))
                text = f"{medians[counter.name]:,.0f}" + (" /s" if counter.kind == TOTAL else "")
            rows.append((counter.name, text, counter.meaning))
    memory = place[1].facts["memory_bytes"]
    assert isinstance(memory, int)
    plausible = (
        medians["utilization_percent"] > 50
        and 0 < medians["memory_used_bytes"] < memory
        and medians["power_mw"] > 50_000
        and medians["sm_clock_mhz"] > 300
    )
    return rows, plausible
