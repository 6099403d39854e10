"""ns that attaching to PyTorch adds to what it touches: record_function, backward, module calls."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.results import ROOT, publish, table
from ncclscope.native import plugin_path
from ncclscope.overhead.statistics import bootstrap_interval

# Each way is timed with what the plugin has replaced in PyTorch and with what was there before, in
# turn: a machine is not equally fast all the time. One of two equal blocks is watched.
_PROGRAM = """
import json, random, time
import torch
from ncclscope.simulation.nccl import SimulatedNccl
import ncclscope.torch
torch.set_num_threads(1)
def block():
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
blocks = {False: block(), True: block()}
x, leaf = torch.ones(1, 8), torch.ones(1, requires_grad=True)
def named(_):
    with torch.autograd.profiler.record_function("a range of PyTorch"): pass
def forward(block):
    with torch.no_grad(): block(x)
def both(block):
    block(x).sum().backward()
def backward(_):
    leaf.sum().backward()
nccl = SimulatedNccl()
comm = nccl.communicator("world", nccl.unique_id(), 1, 0)
for _ in range(100000): pass
assert ncclscope.torch.is_recorded()
ncclscope.torch.watch(blocks[True])
engine, ranges = torch.autograd.Variable._execution_engine, torch.autograd.profiler.record_function
attached = {name: vars(ranges)[name] for name in ("__enter__", "__exit__")}
def switch(on):
    torch.autograd.Variable._execution_engine = engine if on else engine._inner
    for name, method in attached.items():
        setattr(ranges, name, method if on else method.__wrapped__)
def round_of(function, count, on):
    switch(on)
    function(blocks[on])
    before = time.thread_time_ns()
    for _ in range(count): function(blocks[on])
    return (time.thread_time_ns() - before) / count
ways = {
    "named": (named, 60), "backward": (backward, 30), "forward": (forward, 40), "both": (both, 15),
}
pairs = {name: [] for name in ways}
for _ in range(ROUNDS):
    for name, way in ways.items():
        pair = {on: round_of(*way, on) for on in random.sample((False, True), 2)}
        pairs[name].append((pair[False], pair[True]))
print(json.dumps([pairs, torch.__version__]))
switch(True)
nccl.destroy([comm])
"""
ROUNDS = 400
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
            [sys.executable, "-c", _PROGRAM.replace("ROUNDS", str(ROUNDS))],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
    pairs, release = json.loads(ran.stdout.splitlines()[-1])
    rows: list[list[object]] = []
    for name, (calls, meaning) in ROWS.items():
        plain = statistics.median(before for before, _ in pairs[name]) / calls
        adds = [(after - before) / calls for before, after in pairs[name]]
        low, high = bootstrap_interval(
            lambda chance, adds=adds: statistics.median(chance.choices(adds, k=len(adds))), 1000
        )
        middle = statistics.median(adds)
        rows.append([meaning, f"{plain:,.0f}", f"{middle:,.0f} [{low:,.0f}, {high:,.0f}]"])
    note = (
        f"ns of thread CPU time, PyTorch {release} on the CPU; medians of {ROUNDS} pairs of rounds "
        "in one process, with what the plugin replaces in PyTorch and with what PyTorch has, in "
        "random order; 95 % intervals by resampling pairs. Modules are hooked with "
        "`--torch=modules` or `watch` only; the last row has a mark in backward as well."
    )
    header = ["what", "plain", "adds [95 %]"]
    publish("torch-cost", f"{table(header, rows)}\n\n{note}")


if __name__ == "__main__":
    main()
