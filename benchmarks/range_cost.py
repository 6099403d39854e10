"""ns of a range: a push with its pop, by what says it, while the recorder writes to disk."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.results import ROOT, publish, table
from ncclscope.capture.reader import open_capture
from ncclscope.native import player_path, plugin_path

BAR_NS = 70  # over one reading of the clock, with a text that is known
# What `ncclscope-player ranges --cost` prints, and what it means.
ROWS = {
    "number": "by the number of a text (Python's attach)",
    "registered": "NVTX, registered string in a domain",
    "text8": "NVTX, text of 8 bytes",
    "text60": "NVTX, text of 60 bytes",
    "unrecorded": "before the first communicator",
}
_PYTHON = """
import ctypes, os, sys, time
plugin = os.environ["NCCL_PROFILER_PLUGIN"]
assert ctypes.PyDLL(plugin).ncclscope_python_module() == 0
import _ncclscope_recorder as native
from ncclscope.simulation.nccl import SimulatedNccl
nccl = SimulatedNccl()
comm = nccl.communicator("world", nccl.unique_id(), 1, 0)
push, pop, number = native.range_push, native.range_pop, native.text("known")
def best(text):
    least = 1e9
    for _ in range(200):
        before = time.thread_time_ns()
        for _ in range(10000):
            push(text, 2); pop()
        least = min(least, (time.thread_time_ns() - before) / 10000)
        time.sleep(0.02)
    return least
def loop():
    before = time.thread_time_ns()
    for _ in range(10000): pass
    return (time.thread_time_ns() - before) / 10000
empty = min(loop() for _ in range(50))
print("python", best(number) - empty)
print("python_text", best("a text of Python") - empty)
nccl.destroy([comm])
"""


def _measure(command: list[str], capture: Path) -> dict[str, float]:
    """What a program prints, after a check that no range was dropped."""
    environment = os.environ | {
        "NCCL_PROFILER_PLUGIN": str(plugin_path()),
        "NCCLSCOPE_DIR": str(capture),
        "NCCLSCOPE_MODE": "trace",
        "NCCLSCOPE_TORCH": "off",
    }
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    (process,) = open_capture(capture).processes
    assert "dropped_ranges" not in dict(process.counters)
    return {line.split()[0]: float(line.split()[1]) for line in ran.stdout.splitlines()}


def main() -> None:
    """Measures, and holds the first row against the bar."""
    scratch = ROOT / ".bench"
    scratch.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch) as temporary:
        player = [str(player_path()), "ranges", "--cost"]
        best = _measure(player, Path(temporary) / "player")
        best |= _measure([sys.executable, "-c", _PYTHON], Path(temporary) / "python")
    clock = best["clock"]
    python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    named = ROWS | {"python": f"{python}, by number", "python_text": f"{python}, text of 16 bytes"}
    rows: list[list[object]] = [
        [meaning, f"{best[name]:.1f}", f"{best[name] - clock:.1f}"]
        for name, meaning in named.items()
    ]
    note = (
        "ns of thread CPU time for a push with its pop, best of 200 rounds. A reading of the "
        f"clock takes {clock:.1f} ns, and a range has two. The bar is {BAR_NS} ns over one "
        "reading, with a text that is known. Slots go to disk meanwhile; no range was dropped."
    )
    header = ["range", "push and pop", "over one clock read"]
    publish("range-cost", f"{table(header, rows)}\n\n{note}")
    if best["number"] - clock > BAR_NS:
        raise SystemExit(f"a range takes {best['number'] - clock:.1f} ns over the clock")


if __name__ == "__main__":
    main()
