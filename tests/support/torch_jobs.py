"""PyTorch programs of several ranks, recorded or not."""

import os
import subprocess
import sys
from pathlib import Path

from ncclscope.native import plugin_path
from tests.support.paths import ROOT

_PRELUDE = """
import os, sys, threading, warnings
import torch, torch.nn as nn, torch.distributed as dist
torch.set_num_threads(1)
torch.manual_seed(0)
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = nn.Linear(width, width), nn.Linear(width, width)
    def forward(self, x):
        return x + self.b(torch.relu(self.a(x)))

class Net(nn.Module):
    def __init__(self, width=32, depth=3):
        super().__init__()
        self.layers = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 4)
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

def begin(backend):
    if backend == "simulated":
        import tests.support.torch_backend
    dist.init_process_group(backend, init_method="file://" + os.environ["STORE"], rank=rank,
                            world_size=ranks)
"""


def run_torch(folder: Path, body: str, ranks: int = 2, **variables: str) -> list[str]:
    """Runs a program as several ranks and returns what each printed. `record="steps"` or
    `record="modules"` records into `folder / "capture"`.
    """
    environment = os.environ | {
        "WORLD_SIZE": str(ranks),
        "STORE": str(folder / "store"),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    record = variables.pop("record", "")
    if record:
        environment |= {
            "NCCL_PROFILER_PLUGIN": str(plugin_path()),
            "NCCLSCOPE_DIR": str(folder / "capture"),
            "NCCLSCOPE_MODE": "trace",
            "NCCLSCOPE_TORCH": record,
        }
    program = folder / "program.py"
    program.write_text(_PRELUDE + body)
    (folder / "store").unlink(missing_ok=True)
    started = [
        subprocess.Popen(
            [sys.executable, str(program)],
            env=environment | {"RANK": str(rank)} | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    outputs = []
    for process in started:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err[-4000:]
        outputs.append(out)
    return outputs
