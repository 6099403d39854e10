"""ns per callback when NCCL and the driver have used the caches in between, without either.

NCCLSCOPE_BENCH_BEFORE names another build of the plugin to measure in the same runs.
"""

import gzip
import json
import os
import shutil
import statistics
import subprocess
from pathlib import Path

from benchmarks.loads import scratch
from benchmarks.results import ROOT, publish, table
from ncclscope.native import empty_plugin_path, plugin_path

HERE = Path(__file__).parent
TRANSCRIPT = ROOT / "tests" / "data" / "transcripts" / "2.30.7-v6-2ranks" / "rank0-532.jsonl.gz"
PROCESSES, ROUNDS, CALLS = 9, 30, 60
GROUP_API = 1 << 8
CUDA = "libcuda.so.1"
# Columns of a row: the mode, and where GPU times come from.
MODES = {
    "profile": ("profile", "sampled"),
    "profile, kernel": ("profile", "kernel"),
    "trace": ("trace", "kernel"),
    "full": ("full", "kernel"),
}
# What of the time between two lines of the transcript was its writing, and how long a piece of work
# takes; so much work precedes a call.
WRITING_NS, PIECE_NS, PIECES_BEFORE = 1500, 25, 150


def callbacks_of(first_call: str, call_number: int) -> str:
    """One call's callbacks on the thread that made it, as the driver reads them."""
    with gzip.open(TRANSCRIPT, "rt") as lines:
        events = [json.loads(line) for line in lines]
    starts = [at for at, e in enumerate(events) if e["cb"] == "start" and e["type"] == GROUP_API]
    ends = [*starts[1:], len(events)]
    calls = [
        [e for e in events[start:end] if e["tid"] == events[start]["tid"]]
        for start, end in zip(starts, ends, strict=True)
    ]
    call = [c for c in calls if any(e.get("func") == first_call for e in c)][call_number]
    numbers = {0: 0}
    before_ns, words = call[0]["t"], []
    for event in call:
        pieces = max(0, event["t"] - before_ns - WRITING_NS) // PIECE_NS if words else PIECES_BEFORE
        before_ns = event["t"]
        handle = numbers.setdefault(event["h"], len(numbers))
        parent = numbers.get(event.get("p", 0), 0)
        what = event.get("type", event.get("s", 0))
        words.append(f"{event['cb']} {what} {handle} {parent} {pieces}")
    return "\n".join(words)


def build(directory: Path) -> tuple[Path, Path]:
    """The driver and the plugin that only reads the clock, beside a libcuda that does nothing."""
    driver, clock = directory / "cold_callbacks", directory / "clock.so"
    common = ["gcc", "-O2", "-g", "-std=gnu11", "-w"]
    subprocess.run([*common, "-o", driver, HERE / "cold_callbacks.c", "-ldl"], check=True)
    shared = ["-fPIC", "-shared", "-fvisibility=hidden", "-I", ROOT / "native" / "include"]
    subprocess.run([*common, *shared, "-o", clock, HERE / "clock_plugin.c"], check=True)
    cuda = [*shared, "-Wl,-soname,libcuda.so.1", "-o", directory / CUDA, HERE / "cuda_stub.c"]
    subprocess.run([*common, *cuda], check=True)
    return driver, clock


def measure(
    driver: Path, plugins: dict[str, Path], callbacks: str, mode: str, walk_mb: int, directory: Path
) -> tuple[int, dict[str, float]]:
    """Callbacks that ncclscope gets, and ns of all by plugin, net of the empty one: one process."""
    captures = directory / "captures"
    env = os.environ | {
        "COLD_CALLBACKS_DIR": str(captures),
        "NCCLSCOPE_MODE": MODES[mode][0],
        "NCCLSCOPE_GPU_TIMING": MODES[mode][1],
        "LD_PRELOAD": str(directory / CUDA),
        "NCCLSCOPE_DISK_LIMIT": "4G",
    }
    rounds, calls = (ROUNDS, CALLS) if not walk_mb else (ROUNDS // 2, CALLS // 2)
    command = [driver, rounds, calls, (os.cpu_count() or 2) - 1, walk_mb]
    command += [f"{name}={path}" for name, path in plugins.items()]
    ran = subprocess.run(
        [str(word) for word in command],
        env=env, input=callbacks, capture_output=True, text=True, check=True,
    )  # fmt: skip
    shutil.rmtree(captures)
    ns: dict[str, list[float]] = {}
    for line in ran.stdout.splitlines():
        name, _, *rounds_ns = line.split()
        ns.setdefault(name, []).append(statistics.median(map(float, rounds_ns)))
    # A plugin that returns no handle gets no callback for the event's end: nothing is counted
    # there, nor is what the empty one takes, most of which is the measuring.
    net = {
        name: sum(own - empty for own, empty in zip(each, ns["empty"], strict=True) if own)
        for name, each in ns.items()
    }
    return sum(own > 0 for own in ns["ncclscope"]), net


def row(
    driver: Path, plugins: dict[str, Path], callbacks: str, mode: str, walk_mb: int, directory: Path
) -> list[object]:
    """Medians over processes, each with the plugins at other places of its memory."""
    net: dict[str, list[float]] = {}
    recorders = [name for name in plugins if name not in ("empty", "clock")]
    count = 0
    for process in range(PROCESSES):
        turn = process % len(recorders)
        order = [*recorders[turn:], *recorders[:turn], "empty", "clock"]
        count, ns = measure(
            driver, {name: plugins[name] for name in order}, callbacks, mode, walk_mb, directory
        )
        for name in ("clock", *recorders):
            net.setdefault(name, []).append(ns[name])
    over = [
        statistics.median(ours - clock for ours, clock in zip(net[name], net["clock"], strict=True))
        for name in recorders
    ]
    cells = [f"{statistics.median(net[name]):.0f}" for name in ("clock", *recorders)]
    return [mode, count, *cells, *(f"{each:+.0f}, {each / count:+.1f} each" for each in over)]


def main() -> None:
    """Measures the calls in each mode, with warm and with cold second-level caches."""
    before = os.environ.get("NCCLSCOPE_BENCH_BEFORE")
    rows = []
    calls = {
        "AllReduce": callbacks_of("AllReduce", 3),
        "Send and Recv, grouped": callbacks_of("Send", 1),
    }
    with scratch() as directory:
        driver, clock = build(directory)
        recorders = {"before": Path(before)} if before else {}
        recorders["ncclscope"] = plugin_path()
        plugins = recorders | {"empty": empty_plugin_path(), "clock": clock}
        for walk_mb, cold in ((0, "first level"), (8, "all levels, at the call")):
            for title, callbacks in calls.items():
                for mode in MODES if not walk_mb else ("profile", "trace"):
                    cells = row(driver, plugins, callbacks, mode, walk_mb, directory)
                    rows.append([cold, title, *cells])
    header = ["cold caches", "call", "mode", "callbacks", "one clock read a callback, net"]
    header += [f"{name}, net" for name in recorders]
    header += [f"{name}, over the clock" for name in recorders]
    note = (
        "ns a call, net of an empty plugin: callbacks of the thread that calls, in the order of a "
        "transcript of NCCL 2.30.7, with so much work between them as there was time; the work "
        "goes through 128 KB of code and 128 KB of data. At all levels: 8 MB are walked before "
        "each call. Each callback is timed by itself and waits for what it loads, so nothing of "
        "it overlaps with the work. Callbacks: those that ncclscope is called for, as an event "
        "without a handle has no end; the clock is read in those of the empty plugin. "
        f"Medians of {PROCESSES} processes, in which the plugins take "
        "turns."
    )
    publish("cold-callbacks", f"{table(header, rows)}\n\n{note}")
