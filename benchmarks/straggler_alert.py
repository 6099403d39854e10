"""The alert NcclStraggler on jobs of the laboratory: the late rank is alarmed, and nobody else.

What `serve` counts is taken from captures: the time in AllReduce, AllGather and ReduceScatter by
communicator and rank, and the time in sends and receives by rank. promtool evaluates the shipped
rules on it, as Prometheus would on a job that goes on like that. Delays that cost less than twice
the alert's limit need no alarm. Waiting in other functions, as in receives and broadcasts, is not
looked at: where jobs have these, silence is right. The first quarter of a run is left out: rules
look at minutes. Where one job is judged wrongly, eight of its kind on end decide: jobs of the
laboratory take seconds, in which one rank can be late by chance.

    python -m benchmarks.straggler_alert
"""

import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks.results import publish, table
from ncclscope.analysis.run import Run
from ncclscope.arrays.types import Bools
from ncclscope.model.build import open_model
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


def gpu_seconds(capture: Path) -> dict[str, float]:
    """Series and how they grow in a second."""
    run = Run(open_model(capture))
    words = run.model.words["function"]
    codes = [words.index(name) for name in COUNTED if name in words]
    known = run.timed & (np.asarray(run.operations["global_rank"]) != NONE)
    _, last_ns = run.extent
    first_ns = _all_are_there(run, known)
    begin_ns = first_ns + (last_ns - first_ns) // 4
    known &= np.asarray(run.operations["start_ns"]) >= begin_ns
    counted = known & run.collective & np.isin(run.operations["function"], codes)
    series: dict[str, float] = defaultdict(float)
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


def _all_are_there(run: Run, known: Bools) -> int:
    """When the last rank had finished its second operation: the start-up is over."""
    ends = np.asarray(run.operations["end_ns"])[known]
    ranks = np.asarray(run.operations["global_rank"])[known]
    return max(int(np.sort(ends[ranks == rank])[:2].max()) for rank in np.unique(ranks))


def mean_seconds(name: str, scratch: Path) -> dict[str, float]:
    """Series of several jobs of a kind on end: rules look at minutes, in which chance evens out."""
    sums: dict[str, float] = defaultdict(float)
    for seed in range(1, 1 + _JOBS_ON_END):
        capture = scratch / f"capture{seed}"
        all_kinds()[name].write(capture, seed)
        for series, growth in gpu_seconds(capture).items():
            sums[series] += growth / _JOBS_ON_END
    return sums


def alarmed(seconds: dict[str, float], scratch: Path) -> set[int]:
    """Ranks that the alert fires for, on a job that goes on like this."""
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
    return {int(rank) for rank in re.findall(r'rank="(\d+)"', fired)}


def truth_of(name: str, capture: Path) -> Truth:
    """Makes a job and says what is true of it."""
    return all_kinds()[name].write(capture, 1)


def main() -> None:
    """Asks about all jobs and publishes what was alarmed."""
    counts: dict[str, list[int]] = {}
    lines: list[str] = []
    for name, kind in all_kinds().items():
        fault = name.rpartition(", ")[2]
        if kind.ranks > LARGEST or (kind.faults and fault not in FAULTS):
            continue
        with tempfile.TemporaryDirectory() as directory:
            truth = truth_of(name, Path(directory) / "capture")
            seconds = gpu_seconds(Path(directory) / "capture")
            ranks = alarmed(seconds, Path(directory))
            planted = {rank for origin in truth.origins for rank in origin.ranks}
            wanted = {r for o in truth.origins if o.lost_share >= MUST for r in o.ranks}
            wrong, missed = ranks - planted - set(truth.may_ranks), wanted - ranks
            if wrong or missed:
                seconds = mean_seconds(name, Path(directory))
                ranks = alarmed(seconds, Path(directory))
                wrong, missed = ranks - planted - set(truth.may_ranks), wanted - ranks
        others = any("communicator_gpu_seconds" not in name for name in seconds)
        sort = "healthy" if not kind.faults else "with a slow or late rank"
        own = counts.setdefault(sort + (", other functions, too" if others else ""), [0] * 4)
        own[0] += 1
        own[1] += bool(wanted)
        own[2] += bool(wanted) and not missed
        own[3] += bool(wrong)
        if wrong or (missed and not others):
            lines.append(f"- {name}: alarmed {sorted(ranks)}, planted {sorted(planted)}")
            print(lines[-1], file=sys.stderr, flush=True)
    rows = [[sort, *own] for sort, own in counts.items()]
    header = ["jobs", "number", "with a rank to alarm", "alarmed", "others alarmed"]
    text = table(header, rows) + ("\n\n" + "\n".join(lines) if lines else "")
    publish("straggler-alert", text)


if __name__ == "__main__":
    main()
