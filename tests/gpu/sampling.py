"""`run --system` on a real GPU: which counters NVML gives there, and whose GPU it is.

Needs PyTorch and nvidia-ml-py.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from ncclscope.diagnose.beside import Beside, known, rates
from ncclscope.diagnose.frame import Frame
from ncclscope.model.build import open_model
from ncclscope.system.counters import COUNTERS, GPU, TOTAL

_JOB = """
import os, time, torch, torch.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29577", RANK="0", WORLD_SIZE="1")
dist.init_process_group("nccl")
one = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
until = time.monotonic() + 10
while time.monotonic() < until:
    for _ in range(50):
        two = one @ one
    dist.all_reduce(one)
    one.cpu()
dist.destroy_process_group()
"""


def sampling() -> tuple[list[tuple[str, str, str]], bool]:
    """By counter its median and what it is, and whether what must be there is plausible."""
    with tempfile.TemporaryDirectory() as directory:
        capture = Path(directory) / "c"
        run = [sys.executable, "-m", "ncclscope", "run", "--system", "--system-interval", "0.5"]
        subprocess.run([*run, "-o", capture, "--", sys.executable, "-c", _JOB], check=True)
        beside = Beside(Frame(open_model(capture)))
        place = next(place for place, ranks in beside.ranks_of.items() if ranks == (0,))
        medians, rows = {}, []
        for counter in COUNTERS[GPU]:
            track = beside.tracks(GPU, counter.name).get(place)
            values = rates(track) if counter.kind == TOTAL else known(track)
            shown = "not there"
            if len(values):
                medians[counter.name] = float(np.median(values))
                shown = f"{medians[counter.name]:,.0f}" + (" /s" if counter.kind == TOTAL else "")
            rows.append((counter.name, shown, counter.meaning))
    memory = place[1].facts["memory_bytes"]
    assert isinstance(memory, int)
    plausible = (
        medians["utilization_percent"] > 50
        and 0 < medians["memory_used_bytes"] < memory
        and medians["power_mw"] > 50_000
        and medians["sm_clock_mhz"] > 300
    )
    return rows, plausible
