"""What sampled timing costs, in pairs of blocks of one process: with NCCL's events and without.

Processes differ by several percent, which is more than there is to measure. The ratio is taken
within each pair of blocks, its interval by resampling processes and their pairs.

Piece `pairs`: NCCL's event mask is switched between blocks of one communicator (masking_plugin.c):
off, NCCL calls no plugin, but has one. NCCLSCOPE_OTHER=PATH.so[,NAME=VALUE…] measures another
profiler in turn with profile and trace mode.

Piece `copies`: two copies of NCCL in one process, each with a communicator of its own; only one of
them finds a plugin. Off is no plugin at all.
"""

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ncclscope.capture.reader import open_capture
from ncclscope.native import empty_plugin_path, plugin_path
from ncclscope.nccl.events import GPU_TIMING_EVENTS, MODE_EVENTS, SAMPLING_EVENTS
from ncclscope.overhead.statistics import bootstrap_interval
from tests.gpu.timing import (
    BARRED,
    HERE,
    MOST_CPU,
    RANKS,
    VARIANTS,
    Interval,
    Placing,
    build_rank,
    keep,
    kept,
    most_wall,
    outputs_of,
    pinned,
    rank_environment,
    rounds,
    verdict,
)

BLOCKS = int(os.environ.get("NCCLSCOPE_PAIRS", "20"))
# Another build of the plugin, to be measured in turn with this one.
BEFORE = os.environ.get("NCCLSCOPE_BEFORE", "")
ANOTHER_BUILD = "profile, before"
# Another profiler's plugin with the v5 table, and what switches it on; see NCCLSCOPE_OTHER below.
OTHER = os.environ.get("NCCLSCOPE_OTHER", "")
OTHER_PROFILER = "another profiler"
TRACE = "trace"
_TRACE_VARIABLES = {"NCCLSCOPE_MODE": "trace", "NCCLSCOPE_GPU_TIMING": "auto"}
Pairs = list[list[float]]  # of wall_on, wall_off, cpu_on, cpu_off
HEADER = [
    "NCCL, ranks", "function", "bytes", "way", "recording", "processes", "pairs", "off, µs",
    "on, µs", "wall time [95 %]", "≤ 1.03 / 1.02", "CPU time [95 %]", f"≤ {MOST_CPU}",
]  # fmt: skip


def build_plugin(scratch: Path, *options: str) -> Path:
    """The plugin whose events can be switched off."""
    plugin = scratch / f"masking{len(options)}.so"
    include = HERE.parents[1] / "native" / "include"
    command = ["gcc", "-O2", *options, "-I", include, "-shared", "-fPIC", "-o", plugin]
    subprocess.run([*command, HERE / "masking_plugin.c", "-ldl"], check=True)
    return plugin


def variables_of(variant: str, scratch: str) -> dict[str, str]:
    """What switches a variant on; the masking plugin hands everything on to SWITCH_TO."""
    own = {"NCCLSCOPE_DIR": f"{scratch}/capture", "SWITCH_TO": str(plugin_path())}
    if variant == OTHER_PROFILER:
        path, *settings = OTHER.replace("{output}", scratch).split(",")
        return {"SWITCH_TO": path} | dict(setting.split("=", 1) for setting in settings)
    if variant == ANOTHER_BUILD:
        return own | dict(VARIANTS["profile"]) | {"SWITCH_TO": BEFORE}
    return own | (_TRACE_VARIABLES if variant == TRACE else dict(VARIANTS[variant]))


def measure_process(program: Path, plugin: Path, placing: Placing, variant: str) -> dict[str, Any]:
    """One pair of ranks: by measure its pairs of blocks, of the slower rank and of all CPU time."""
    with tempfile.TemporaryDirectory() as scratch:
        capture = Path(scratch) / "capture"
        variables = variables_of(variant, scratch) | {"NCCL_PROFILER_PLUGIN": str(plugin)}
        commands = []
        for rank in range(RANKS):
            words = [str(program), str(placing.library), str(placing.cudart), str(rank), str(RANKS)]
            words += [f"{scratch}/id", str(placing.hosts), str(BLOCKS), str(plugin)]
            commands.append((pinned(rank, words), rank_environment(rank, placing.hosts, variables)))
        printed = outputs_of(commands, 300)
        processes = open_capture(capture).processes if capture.exists() else ()
        calls = [process.calls_counted() for process in processes]
    return {"variant": variant, "pairs": pairs_by_measure(printed), "calls": calls}


def pairs_by_measure(printed: list[str]) -> dict[str, Pairs]:
    """From what the ranks printed: wall time of the slower rank, CPU time of both."""
    by_rank = [_blocks(out) for out in printed]
    pairs: dict[str, Pairs] = {}
    for key, states in by_rank[0].items():
        columns = []
        for column, join in ((0, max), (1, sum)):
            for state in ("on", "off"):
                values = zip(*(blocks[key][state] for blocks in by_rank), strict=True)
                columns.append([float(join(block[column] for block in ranks)) for ranks in values])
        pairs[key] = [list(pair) for pair in zip(*columns, strict=True)]
        assert len(pairs[key]) == len(states["on"]) == BLOCKS
    return pairs


def _blocks(printed: str) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Wall and CPU time of each block by measure and by whether events were on."""
    blocks: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for line in printed.splitlines()[:-1]:
        function, size_bytes, way, wall, cpu, state = line.split()
        states = blocks.setdefault(f"{function} {size_bytes} {way}", {"on": [], "off": []})
        states[state].append((float(wall), float(cpu)))
    return blocks


def ratio(processes: list[Pairs], on: int, off: int, draws: int = 1000) -> Interval:
    """The median ratio of all pairs; the interval by resampling processes, then their pairs."""
    ratios = [[pair[on] / pair[off] for pair in pairs] for pairs in processes]

    def resample(chance: random.Random) -> float:
        processes_drawn = chance.choices(ratios, k=len(ratios))
        return statistics.median(
            value for own in processes_drawn for value in chance.choices(own, k=len(own))
        )

    middle = statistics.median(value for own in ratios for value in own)
    return Interval(middle, *bootstrap_interval(resample, draws))


def pairs(placing: Placing, results: Path, minutes: float) -> tuple[list[list[object]], bool]:
    """Measures until the time is over; rows of the table, and whether no bar is broken."""
    with tempfile.TemporaryDirectory() as scratch:
        program, plugin = build_rank(Path(scratch)), build_plugin(Path(scratch))
        plugin_of = dict.fromkeys(BARRED, plugin) | ({ANOTHER_BUILD: plugin} if BEFORE else {})
        if OTHER:
            for_other = build_plugin(Path(scratch), "-DV5_ALONE")
            plugin_of = {"profile": plugin, TRACE: plugin, OTHER_PROFILER: for_other}
        for _ in rounds(minutes):
            for variant, own in plugin_of.items():
                line = measure_process(program, own, placing, variant)
                keep(results, {"piece": "pairs", "title": placing.title, **line})
    variants = (*BARRED, ANOTHER_BUILD, TRACE, OTHER_PROFILER)
    return pair_rows(placing.title, kept(results, "pairs", placing.title), variants)


def pair_rows(
    title: str, lines: list[dict[str, Any]], variants: Sequence[str]
) -> tuple[list[list[object]], bool]:
    """Rows of the table, and whether no bar is broken."""
    rows: list[list[object]] = []
    fine = True
    for variant in variants:
        own = [line["pairs"] for line in lines if line["variant"] == variant]
        for key in own[0] if own else ():
            processes: list[Pairs] = [pairs[key] for pairs in own]
            function, size, way = key.split()
            wall, cpu = ratio(processes, 0, 1), ratio(processes, 2, 3)
            bars = [verdict(wall, most_wall((function, int(size), way))), verdict(cpu, MOST_CPU)]
            fine &= variant not in BARRED or not any("**" in bar for bar in bars)
            median_us = [
                f"{statistics.median(pair[k] for pairs in processes for pair in pairs) / 1e3:.2f}"
                for k in (1, 0)
            ]
            count = sum(map(len, processes))
            rows.append([title, function, f"{int(size):,}", way, variant, len(own), count])
            rows[-1] += [*median_us, wall, bars[0], cpu, bars[1]]
    return rows, fine


# ---- two copies of NCCL ----
# What any plugin costs: it is loaded and asks for no event, or it asks for those of profile mode and
# ignores them. And what the method makes of nothing.
ASKS_NOTHING, IGNORES = "a plugin that asks for nothing", "profile mode's events, ignored"
NO_PLUGIN = "no plugin again"
KERNEL = "profile, kernel"  # has no bar
EMPTY_EVENTS = {
    ASKS_NOTHING: 0,
    IGNORES: MODE_EVENTS["profile"] & ~GPU_TIMING_EVENTS | SAMPLING_EVENTS,
}
WAYS = ("back-to-back", "synchronised", "graph-20", "graph-200")
# How a ratio is shown by what its bar says: bold where it is above, ~ where it is not resolved.
MARKED = {"holds": "{}", "not resolved": "~{}", "**does not hold**": "**{}**"}
# How many processes of each kind in a round: those with a bar need the narrowest intervals.
COPIES_A_ROUND = {
    "profile": 2, "trace, sampled": 2, KERNEL: 1,
    IGNORES: 2, ASKS_NOTHING: 1, NO_PLUGIN: 1,
}  # fmt: skip
# NCCLSCOPE_COPIES=NAME;NAME…: only these.
_ONLY = os.environ.get("NCCLSCOPE_COPIES", "")
MEASURED_COPIES = {n: c for n, c in COPIES_A_ROUND.items() if not _ONLY or n in _ONLY.split(";")}


def copies_variables(variant: str, scratch: str) -> dict[str, str] | None:
    """What the copy of NCCL with a plugin finds; None: no plugin either."""
    if variant == NO_PLUGIN:
        return None
    if variant in EMPTY_EVENTS:
        events = str(EMPTY_EVENTS[variant])
        return {
            "NCCL_PROFILER_PLUGIN": str(empty_plugin_path()),
            "NCCLSCOPE_EMPTY_EVENTS": events,
        }
    return dict(VARIANTS[variant]) | {"NCCLSCOPE_DIR": f"{scratch}/capture"}


def measure_copies(
    program: Path, copy: Path, placing: Placing, variant: str, number: int
) -> dict[str, Any]:
    """One pair of ranks with two copies of NCCL each; every second process makes the communicator
    without a plugin first.
    """
    with tempfile.TemporaryDirectory() as scratch:
        variables = copies_variables(variant, scratch)
        commands = []
        for rank in range(RANKS):
            words = [str(program), str(placing.library), str(placing.cudart), str(rank), str(RANKS)]
            words += [f"{scratch}/id", str(placing.hosts), str(BLOCKS)]
            env = rank_environment(rank, placing.hosts, variables) | {"TIMING_WITHOUT": str(copy)}
            env |= {"TIMING_WITHOUT_FIRST": "1"} if number % 2 else {}
            commands.append((pinned(rank, words), env))
        printed = outputs_of(commands, 300)
    return {"variant": variant, "pairs": pairs_by_measure(printed)}


def copies(placing: Placing, results: Path, minutes: float) -> tuple[list[list[object]], bool]:
    """Measures until the time is over; rows of the table, and whether no bar is broken."""
    with tempfile.TemporaryDirectory() as scratch:
        program, copy = build_rank(Path(scratch)), Path(scratch) / "libnccl-without.so"
        shutil.copyfile(placing.library, copy)
        for number in rounds(minutes):
            for variant, count in MEASURED_COPIES.items():
                for own in range(count):
                    line = measure_copies(program, copy, placing, variant, number + own)
                    keep(results, {"piece": "copies", "title": placing.title, **line})
    return copies_rows(placing.title, kept(results, "copies", placing.title))


COPIES_HEADER = ["NCCL, ranks", "recording", "processes", "function", "bytes", "no plugin, µs",
                 *WAYS, "CPU time, most"]  # fmt: skip


def copies_rows(title: str, lines: list[dict[str, Any]]) -> tuple[list[list[object]], bool]:
    """A row for each function and size, with a column for each way; whether no bar is broken."""
    rows: list[list[object]] = []
    fine = True
    for variant in COPIES_A_ROUND:
        own = [line["pairs"] for line in lines if line["variant"] == variant]
        measures = [key.split() for key in own[0]] if own else []
        for function, size in dict.fromkeys((measure[0], measure[1]) for measure in measures):
            cells, cpu_times = dict.fromkeys(WAYS, "–"), []
            for way in (own_way for of, by, own_way in measures if (of, by) == (function, size)):
                processes: list[Pairs] = [pairs[f"{function} {size} {way}"] for pairs in own]
                wall, cpu = ratio(processes, 0, 1), ratio(processes, 2, 3)
                verdicts = verdict(wall, most_wall((function, int(size), way)))
                fine &= variant not in BARRED or "**" not in verdicts + verdict(cpu, MOST_CPU)
                cells[way] = (MARKED[verdicts] if variant != KERNEL else "{}").format(wall)
                cpu_times.append(cpu)
                if len(cpu_times) == 1:
                    base = statistics.median(pair[1] for pairs in processes for pair in pairs)
            most_cpu = max(cpu_times, key=lambda cpu: cpu.high)
            mark = MARKED[verdict(most_cpu, MOST_CPU)] if variant != KERNEL else "{}"
            cells["CPU"] = mark.format(most_cpu)
            rows.append([title, variant, len(own), function, f"{int(size):,}", f"{base / 1e3:.2f}"])
            rows[-1] += cells.values()
    return rows, fine


# ---- training ----
JOBS = ("ddp", "densenet121", "fsdp", "fsdp-tp")
_RANKS_OF_JOB = {"fsdp-tp": 4}
TRAINING_HEADER = [
    "NCCL, ranks", "job", "recording", "processes", "pairs", "off, ms", "on, ms",
    "off again / off [95 %]", "step [95 %]", "≤ 1.01",
]  # fmt: skip
_MOST_STEP = 1.01
# By hosts: steps over sockets take three times as long.
_PAIRS_OF_BLOCKS = {
    hosts: int(os.environ.get("NCCLSCOPE_PAIRS", pairs)) for hosts, pairs in ((1, "100"), (2, "50"))
}


def measure_training(job: str, plugin: Path, placing: Placing, variant: str) -> Pairs:
    """Pairs of blocks of steps of one job, of the slower rank. On one host NCCL is the given
    release instead of PyTorch's, which cannot have two ranks on a GPU there.
    """
    with tempfile.TemporaryDirectory() as scratch:
        variables = dict(VARIANTS[variant]) | {
            "NCCLSCOPE_DIR": f"{scratch}/capture",
            "NCCL_PROFILER_PLUGIN": str(plugin),
            "SWITCH_TO": str(plugin_path()),
        }
        port = str(random.Random().randint(20000, 40000))
        commands = []
        ranks = _RANKS_OF_JOB.get(job, RANKS)
        for rank in range(ranks):
            env = rank_environment(rank, placing.hosts, variables, ranks)
            env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            env |= {"PAIRS": str(_PAIRS_OF_BLOCKS[placing.hosts])}
            if placing.hosts == 1:
                env["LD_PRELOAD"] = str(placing.library)
            command = [sys.executable, str(HERE / "training_job.py"), job, str(plugin)]
            commands.append((pinned(rank, command, ranks), env))
        printed = [json.loads(out.splitlines()[-1]) for out in outputs_of(commands, 300)]
    slower = ([max(block) for block in zip(*(out[s] for out in printed), strict=True)]
              for s in ("on", "off", "off again"))  # fmt: skip
    return [list(pair) for pair in zip(*slower, strict=True)]


def training(
    placing: Placing, results: Path, minutes: float, jobs: Sequence[str]
) -> tuple[list[list[object]], bool]:
    """Steps with the recorder as it comes in profile mode, PyTorch attached, against none."""
    variant = "profile"
    titles = {job: f"{job}, {placing.title}" for job in jobs}
    with tempfile.TemporaryDirectory() as scratch:
        plugin = build_plugin(Path(scratch))
        for _ in rounds(minutes):
            for job in jobs:
                own = measure_training(job, plugin, placing, variant)
                keep(results, {"piece": "training", "title": titles[job], "pairs": own})
    rows: list[list[object]] = []
    fine = True
    for job in jobs:
        processes: list[Pairs] = [line["pairs"] for line in kept(results, "training", titles[job])]
        # Both blocks without anything are what the third is compared with.
        against_both = [[[on, (off + again) / 2] for on, off, again in own] for own in processes]
        step = ratio(against_both, 0, 1)
        fine &= step.low <= _MOST_STEP
        median_ms = [
            f"{statistics.median(pair[k] for own in processes for pair in own):.2f}" for k in (1, 0)
        ]
        count = sum(map(len, processes))
        rows.append([placing.title, job, variant, len(processes), count, *median_ms])
        rows[-1] += [ratio(processes, 2, 1), step, verdict(step, _MOST_STEP)]
    return rows, fine
