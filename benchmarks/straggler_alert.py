"""The alert NcclStraggler on jobs of the laboratory: the late rank is alarmed, and nobody else.

What `serve` counts is taken from captures, twice: as in trace mode, with the account of waiting as
the process beside serve makes it (live/waiting_window.py), and as in profile mode: the time in
AllReduce, AllGather and ReduceScatter by communicator and rank, and the time in sends and receives
by rank. promtool evaluates the shipped rules on it, as Prometheus would on a job that goes on like
that. Delays that cost less than twice the alert's limit need no alarm. Without the account, waiting
in other functions, as in receives and broadcasts, is not looked at: where jobs have these, silence
is right. The first quarter of a run is left out: rules look at minutes. Where one job is judged
wrongly, eight of its kind on end decide: jobs of the laboratory take seconds, in which one rank can
be late by chance.

    python -m benchmarks.straggler_alert
"""

import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.results import publish, table
from ncclscope.analysis.run import Run
from ncclscope.arrays.types import Bools
from ncclscope.capture.housekeeping import process_folders
from ncclscope.live.waiting_window import WindowAccount, account_of_model
from ncclscope.model.build import open_model
from ncclscope.model.recent_model import recent_model
from ncclscope.model.schema import NONE
from tests.support.laboratory.kinds import all_kinds
from tests.support.laboratory.truth import Truth
from tools import rules

LARGEST = 16  # ranks
COUNTED = ("AllReduce", "AllGather", "ReduceScatter")
MUST = 2 * rules.STRAGGLER_SHARE  # of the run lost: from here on silence is a miss
FAULTS = ("late rank", "slow GPU", "slow host", "two late ranks", "slow data loader")
_EVALUATED = "10m"
_JOBS_ON_END = 8
_ALL_SLOTS = 1 << 24  # of a process: more than jobs of the laboratory have
MODES = ("trace", "profile")
Seconds = dict[str, float]  # series, and how they grow in a second


def seconds_of(capture: Path, mode: str) -> Seconds:
    """What `serve` counts in a mode."""
    seconds = gpu_seconds(capture)
    return seconds | waiting_seconds(capture) if mode == "trace" else seconds


def waiting_seconds(capture: Path) -> Seconds:
    """What it accounts for; nothing where it gives a reason instead."""
    folders = process_folders(capture)
    model = recent_model(capture, dict.fromkeys(folders, _ALL_SLOTS))
    run = Run(model)
    known = run.timed & (np.asarray(run.operations["global_rank"]) != NONE)
    begin_ns = _begin_ns(run, known) + model.realtime_offset_ns
    last_ns = run.extent[1] + model.realtime_offset_ns
    found = account_of_model(model, set(), begin_ns, last_ns)
    if not isinstance(found, WindowAccount):
        return {}
    length_ns = found.until_ns - found.since_ns
    series = {}
    for rank, caused_ns in found.caused_ns.items():
        labels = f'{{run="1", host="{run.host_of.get(rank, "")}", rank="{rank}"}}'
        for name, ns in (
            ("caused", caused_ns),
            ("for_work", found.idle_ns.get(rank, 0)),
            ("account", length_ns),
        ):
            series[f"ncclscope_waiting_{name}_seconds_total{labels}"] = ns / length_ns
    return series


def gpu_seconds(capture: Path) -> Seconds:
    """Times on GPUs."""
    run = Run(open_model(capture))
    words = run.model.words["function"]
    codes = [words.index(name) for name in COUNTED if name in words]
    known = run.timed & (np.asarray(run.operations["global_rank"]) != NONE)
    last_ns, begin_ns = run.extent[1], _begin_ns(run, known)
    known &= np.asarray(run.operations["start_ns"]) >= begin_ns
    counted = known & run.collective & np.isin(run.operations["function"], codes)
    series: Seconds = defaultdict(float)
    others = known & run.collective & ~counted
    if others.any():
        series['ncclscope_operations_total{function="other"}'] = float(others.sum())
    for row in np.flatnonzero(counted | (known & run.p2p)).tolist():
        columns = ("communicator", "global_rank", "duration_ns", "function")
        communicator, rank, duration_ns, function = (int(run.operations[c][row]) for c in columns)
        labels = f'run="1", host="h", scope="inter", rank="{rank}"'
        if counted[row]:
            name = run.model.communicator_names[communicator]
            key = f'ncclscope_communicator_gpu_seconds_total{{{labels}, communicator="{name}"}}'
        else:
            key = f'ncclscope_least_gpu_seconds_total{{{labels}, function="{words[function]}"}}'
        series[key] += duration_ns / (last_ns - begin_ns)
    return series


def _begin_ns(run: Run, known: Bools) -> int:
    """When the first quarter is over."""
    first_ns, last_ns = _all_are_there(run, known), run.extent[1]
    return first_ns + (last_ns - first_ns) // 4


def _all_are_there(run: Run, known: Bools) -> int:
    """When the last rank had finished its second operation: the start-up is over."""
    ends = np.asarray(run.operations["end_ns"])[known]
    ranks = np.asarray(run.operations["global_rank"])[known]
    return max(int(np.sort(ends[ranks == rank])[:2].max()) for rank in np.unique(ranks))


def mean_seconds(name: str, mode: str, scratch: Path) -> Seconds:
    """Series of several jobs of a kind on end: rules look at minutes, in which chance evens out."""
    sums: Seconds = defaultdict(float)
    for seed in range(1, 1 + _JOBS_ON_END):
        capture = scratch / f"capture{seed}"
        all_kinds()[name].write(capture, seed)
        for series, growth in seconds_of(capture, mode).items():
            sums[series] += growth / _JOBS_ON_END
    return sums


def alarmed(seconds: Seconds, scratch: Path) -> set[int]:
    """Ranks that the alert fires for, on a job that goes on like this; of a host, all of its."""
    (scratch / "rules.yml").write_text(rules.rules_yaml(rules.Times(), "15s"))
    series = [
        {"series": name, "values": f"0+{15 * growth:.6f}x60"} for name, growth in seconds.items()
    ]
    test = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": series,
                "alert_rule_test": [{"eval_time": _EVALUATED, "alertname": "NcclStraggler"}],
            }
        ],
    }
    (scratch / "test.yml").write_text(json.dumps(test))  # JSON is YAML
    done = subprocess.run(
        ["promtool", "test", "rules", str(scratch / "test.yml")], capture_output=True, text=True
    )
    # No alert is expected: promtool fails and lists those that fire.
    fired = (done.stdout + done.stderr).rpartition("got:")[2]
    ranks = set()
    for labels in re.findall(r'{alertname="NcclStraggler"([^}]*)}', fired):
        if rank := re.search(r'rank="(\d+)"', labels):
            ranks.add(int(rank[1]))
        elif host := re.search(r'host="([^"]*)"', labels):
            own = re.compile(rf'host="{re.escape(host[1])}", rank="(\d+)"')
            ranks |= {int(found[1]) for name in seconds if (found := own.search(name))}
    return ranks


@dataclass(slots=True)
class Tally:
    """Jobs of one sort."""

    number: int = 0
    wanted: int = 0
    alarmed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MODES, 0))  # by mode
    wrong: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MODES, 0))


def main() -> None:
    """Asks about all jobs and publishes what was alarmed."""
    tallies: dict[str, Tally] = {}
    lines: list[str] = []
    for name, kind in all_kinds().items():
        fault = name.rpartition(", ")[2]
        if kind.ranks > LARGEST or (kind.faults and fault not in FAULTS):
            continue
        with tempfile.TemporaryDirectory() as directory:
            lines += _ask(name, Path(directory), tallies)
    header = ["jobs", "number", "with a rank to alarm"]
    header += [f"{what}, {mode}" for mode in MODES for what in ("alarmed", "others alarmed")]
    rows = [
        [sort, own.number, own.wanted]
        + [count for mode in MODES for count in (own.alarmed[mode], own.wrong[mode])]
        for sort, own in tallies.items()
    ]
    text = table(header, rows) + ("\n\n" + "\n".join(lines) if lines else "")
    publish("straggler-alert", text)


def _ask(name: str, scratch: Path, tallies: dict[str, Tally]) -> list[str]:
    """Asks about one job in each mode; lines about what went wrong."""
    lines = []
    truth: Truth = all_kinds()[name].write(scratch / "capture", 1)
    planted = {rank for origin in truth.origins for rank in origin.ranks}
    wanted = {r for o in truth.origins if o.lost_share >= MUST for r in o.ranks}
    others = any("communicator_gpu" not in series for series in gpu_seconds(scratch / "capture"))
    sort = "with a slow or late rank" if all_kinds()[name].faults else "healthy"
    own = tallies.setdefault(sort + (", other functions, too" if others else ""), Tally())
    own.number += 1
    own.wanted += bool(wanted)
    for mode in MODES:
        ranks = alarmed(seconds_of(scratch / "capture", mode), scratch)
        right = planted | set(truth.may_ranks)
        if ranks - right or wanted - ranks:
            ranks = alarmed(mean_seconds(name, mode, scratch), scratch)
        wrong, missed = ranks - right, wanted - ranks
        own.alarmed[mode] += bool(wanted) and not missed
        own.wrong[mode] += bool(wrong)
        if wrong or (missed and not (others and mode == "profile")):
            lines.append(f"- {mode}: {name}: alarmed {sorted(ranks)}, planted {sorted(planted)}")
            print(lines[-1], file=sys.stderr, flush=True)
    return lines


if __name__ == "__main__":
    main()
