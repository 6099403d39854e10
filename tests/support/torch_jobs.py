"""PyTorch programs of several ranks, recorded or not.

Importing PyTorch takes longer than what most programs do. A server imports it once and forks for
each rank; a rank still is a process of its own, which begins and ends as others do.
"""

import functools
import json
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


_SERVER = """
import gc, json, os, runpy, signal, sys
import torch, torch._dynamo, torch._inductor.compile_fx, torch.nn, torch.distributed
gc.freeze()
for line in sys.stdin:
    ranks = []
    for request in json.loads(line):
        ranks.append(os.fork())
        if not ranks[-1]:
            signal.alarm(300)
            os.environ.clear()
            os.environ.update(request["environment"])
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            for place, path in enumerate(request["files"], 1):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), place)
            sys.argv = [request["program"]]
            runpy.run_path(request["program"], run_name="__main__")
            sys.exit()
    codes = [os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks]
    print(json.dumps([codes, sum(os.times()[:4])]), flush=True)
"""
_OF_THE_SERVER = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
_CPU_S = {"of all jobs": 0.0}


@functools.cache
def _server() -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        env=os.environ | _OF_THE_SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def run_torch(folder: Path, body: str, ranks: int = 2, **variables: str) -> list[str]:
    """Runs a program as several ranks and returns what each printed. `record="steps"` or
    `record="modules"` records into `folder / "capture"`.
    """
    environment = (
        os.environ
        | _OF_THE_SERVER
        | {
            "WORLD_SIZE": str(ranks),
            "STORE": str(folder / "store"),
        }
    )
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
    outputs = [(folder / f"out{rank}", folder / f"err{rank}") for rank in range(ranks)]
    requests = [
        {
            "program": str(program),
            "environment": environment | {"RANK": str(rank)} | variables,
            "files": [str(path) for path in files],
        }
        for rank, files in enumerate(outputs)
    ]
    server = _server()
    assert server.stdin
    assert server.stdout
    server.stdin.write(json.dumps(requests) + "\n")
    server.stdin.flush()
    codes, _CPU_S["of all jobs"] = json.loads(server.stdout.readline())
    for code, (_, err) in zip(codes, outputs, strict=True):
        assert code == 0, err.read_text()[-4000:]
    return [out.read_text() for out, _ in outputs]


def seconds_of_torch() -> float:
    """CPU time of all programs that `run_torch` ran."""
    return _CPU_S["of all jobs"]
