"""The training context of real PyTorch jobs: `python -m tests.gpu.training [ROUNDS [KIND …]]`.

For each kind of job the share of calls within steps that have the right phase, and a module where
PyTorch says one; the number of steps; and the median step with `--torch` over that with
`--no-torch`, interleaved. Ranks share one GPU; run it below MPS (tests/gpu/mps.py does that).
"""

import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import ncclscope
from tests.gpu.mps import mps

JOB = Path(__file__).with_name("context_job.py")
STEPS = 40
RANKS = {"tp": 4}
KINDS = ("ddp", "fsdp2", "tp", "compile", "checkpoint")
# Jobs whose calls say themselves what they are (context_job.py): by kind how they are recorded.
SELF_EVIDENT = {
    "sized": ("--torch=modules",),
    "graph": ("--torch=modules", "--gpu-timing", "kernel"),
    "pipeline": ("--torch",),
}
_HOOKED_AFTER = 3  # backward passes: blocks say nothing before
# Calls whose phase is certain by their function, and whether they must have a module.
_CHECK = """
select count(*),
    count(*) filter (phase = 'backward' or "function" not in ('ReduceScatter')),
    count(*) filter (phase is not null),
    count(*) filter (module is not null),
    count(distinct step)
from operations
where step is not null and step > 0 and part_of is null and {of}
"""
# How many calls of each step belong to each place: by hand comparable with what the model is made of.
_PLACES = """
select "function", phase, module_name, prefetch, count(*) as calls, count(distinct step) as steps
from operations
where step is not null and step > 0 and part_of is null and {of}
group by all order by all
"""
_OF = {
    "ddp": "\"function\" = 'AllReduce'",
    "compile": "\"function\" = 'AllReduce'",
    "fsdp2": "\"function\" in ('AllGather', 'ReduceScatter')",
    "checkpoint": "\"function\" in ('AllGather', 'ReduceScatter')",
    "tp": "\"function\" in ('AllGather', 'ReduceScatter') and dimension = 'dp'",
}
_RIGHT = """
select count(*), count(*) filter (phase = {phase}), count(*) filter (module_name = {module}),
    count(distinct step)
from operations where step is not null and step >= {first} and part_of is null
    and state <> 'captured' and {of}
"""
# The number of elements has the layer and the phase; of a pipeline, the direction has the phase.
_SIZED = {
    "phase": "case count % 4096 when 0 then 'forward' else 'backward' end",
    "module": "'layers.' || (count // 4096 - 1)",
    "of": "\"function\" = 'AllReduce' and count >= 4096",
}
_TRUTHS = {
    "sized": _SIZED,
    "graph": _SIZED,
    "pipeline": {
        "phase": "case (\"function\" = 'Send') = (global_rank = 0) "
        "when true then 'forward' else 'backward' end",
        "module": "'stage ' || global_rank",
        "of": "\"function\" in ('Send', 'Recv')",
    },
}


def run_job(kind: str, capture: Path, *options: str) -> float:
    """Runs a job recorded; its median step in us, the mean over ranks."""
    ranks = RANKS.get(kind, 2)
    command = [sys.executable, "-m", "ncclscope", "run", "-q", "-o", str(capture), *options, "--"]
    command += [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}"]
    ran = subprocess.run([*command, str(JOB), kind], capture_output=True, text=True, check=False)
    answers = [json.loads(text) for text in re.findall(r'\{"rank".*?\}', ran.stdout)]
    if ran.returncode or len(answers) != ranks:
        raise SystemExit(f"{kind}: {ran.stderr[-4000:]}")
    return statistics.mean(float(answer["median_us"]) for answer in answers)


def check(kind: str, capture: Path) -> dict[str, object]:
    """How much of the context is there."""
    opened = ncclscope.open(capture)
    calls, right, phased, moduled, steps = opened.sql(_CHECK.format(of=_OF[kind])).fetchall()[0]
    origins = opened.sql("select origin, count(*) from steps group by 1").fetchall()
    prefetched = opened.sql("select count(*) from operations where prefetch = 1").fetchall()[0][0]
    threads = opened.sql(
        "select context, count(*) from operations group by 1 order by 2 desc"
    ).fetchall()
    places = opened.sql(_PLACES.format(of=_OF[kind])).fetchall()
    return {
        "kind": kind, "calls": calls, "right phase": right, "with phase": phased,
        "with module": moduled, "steps after the first": steps, "steps by": origins,
        "prefetched": prefetched, "known by": threads, "places": places,
        "torch": opened.model.training.torch, "device": opened.model.training.device,
        "failures": opened.model.training.failures,
        "complete": opened.completeness().line(),
    }  # fmt: skip


def check_self_evident(kind: str, capture: Path) -> dict[str, object]:
    """How many calls have the phase and module that they say themselves."""
    opened = ncclscope.open(capture)
    first = 0 if kind == "graph" else _HOOKED_AFTER
    calls, phase, module, steps = opened.sql(
        _RIGHT.format(first=first, **_TRUTHS[kind])
    ).fetchall()[0]
    seen = opened.sql(
        'select "function", state, context, phase, module_name, dimension, count(*) '
        "from operations group by all order by all"
    ).fetchall()
    return {
        "kind": kind, "calls": calls, "right phase": phase, "right module": module, "steps": steps,
        "steps by": opened.sql("select origin, count(*) from steps group by 1").fetchall(),
        "seen": seen, "torch": opened.model.training.torch,
        "failures": opened.model.training.failures, "complete": opened.completeness().line(),
    }  # fmt: skip


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    for kind in sys.argv[2:] or (*KINDS, *SELF_EVIDENT):
        ratios = []
        if kind in SELF_EVIDENT:
            with tempfile.TemporaryDirectory() as directory, mps():
                capture = Path(directory) / "capture"
                run_job(kind, capture, *SELF_EVIDENT[kind])
                print(json.dumps(check_self_evident(kind, capture)), flush=True)
            continue
        with tempfile.TemporaryDirectory() as directory, mps():
            for number in range(rounds):
                plain = run_job(kind, Path(directory) / f"plain{number}", "--no-torch")
                attached = run_job(kind, Path(directory) / f"torch{number}", "--torch")
                ratios.append(attached / plain)
            print(json.dumps(check(kind, Path(directory) / "torch0")), flush=True)
        listed = ", ".join(f"{ratio:.3f}" for ratio in ratios)
        print(f"{kind}: median step with --torch over --no-torch: {listed}", flush=True)


if __name__ == "__main__":
    main()
