"""ns that attaching to PyTorch adds to what it touches: record_function, backward, module calls."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.results import ROOT, publish, table
from ncclscope.native import plugin_path

# Each way is timed before the plugin attaches and after; blocks are watched for the last two.
_PROGRAM = """
import ctypes, json, os, time
import torch
from ncclscope.simulation.nccl import SimulatedNccl
import ncclscope.torch
torch.set_num_threads(1)
block = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
x, leaf = torch.ones(1, 8), torch.ones(1, requires_grad=True)
def named():
    with torch.autograd.profiler.record_function("a range of PyTorch"): pass
def forward():
    with torch.no_grad(): block(x)
def both():
    block(x).sum().backward()
def backward():
    leaf.sum().backward()
def best(function, count, rounds=60):
    least = 1e9
    for _ in range(rounds):
        before = time.thread_time_ns()
        for _ in range(count): function()
        least = min(least, (time.thread_time_ns() - before) / count)
        time.sleep(0.005)
    return least
ways = {
    "named": (named, 500), "backward": (backward, 200),
    "forward": (forward, 500), "both": (both, 100),
}
plain = {name: best(*way) for name, way in ways.items()}
nccl = SimulatedNccl()
comm = nccl.communicator("world", nccl.unique_id(), 1, 0)
for _ in range(100000): pass
assert ncclscope.torch.is_recorded()
attached = {name: best(*ways[name]) for name in ("named", "backward")}
ncclscope.torch.watch(block)
attached |= {name: best(*ways[name]) for name in ("forward", "both")}
print(json.dumps([plain, attached, torch.__version__]))
nccl.destroy([comm])
"""
# What the program times, how many calls are in it, and what it is.
ROWS = {
    "named": (1, "`record_function`, entered and left"),
    "backward": (1, "a backward pass"),
    "forward": (2, "call of a hooked module, forward alone"),
    "both": (2, "call of a hooked module, forward and backward"),
}


def main() -> None:
    """Measures, and writes the table."""
    scratch = ROOT / ".bench"
    scratch.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch) as temporary:
        environment = os.environ | {
            "NCCL_PROFILER_PLUGIN": str(plugin_path()),
            "NCCLSCOPE_DIR": str(Path(temporary) / "capture"),
            "NCCLSCOPE_MODE": "trace",
            "NCCLSCOPE_TORCH": "steps",
            "OMP_NUM_THREADS": "1",
        }
        ran = subprocess.run(
            [sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
    plain, attached, release = json.loads(ran.stdout.splitlines()[-1])
    rows: list[list[object]] = []
    for name, (calls, meaning) in ROWS.items():
        before, after = plain[name] / calls, attached[name] / calls
        rows.append([meaning, f"{before:,.0f}", f"{after:,.0f}", f"{after - before:,.0f}"])
    note = (
        f"ns of thread CPU time, PyTorch {release} on the CPU, best of 60 rounds, before and after "
        "the plugin attaches. Modules are hooked with `--torch=modules` or `watch` only; the last "
        "row has a mark in backward as well."
    )
    header = ["what", "plain", "recorded", "adds"]
    publish("torch-cost", f"{table(header, rows)}\n\n{note}")


if __name__ == "__main__":
    main()
