"""Kernels of some steps of real PyTorch jobs: `python -m tests.gpu.kernels [KIND …]`.

For each kind of job (context_job.py) the steps that PyTorch's profiler took, exposed, overlapped
and idle time, how many of NCCL's kernels are joined with operations, how far the recorder's stamps
are from the profiler's, and whether the exact value lies between the bounds that the report gives
without kernels. Ranks share one GPU, below MPS. Two ranks of one GPU take turns: compute of another
rank is idle time of this one.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from ncclscope.analysis.kernel_exposure import StepExposure, kernel_exposure
from ncclscope.analysis.kernel_time import union_lengths
from ncclscope.ingest.kernel_files import traces_of
from ncclscope.model.build import open_model
from ncclscope.model.model import Model
from ncclscope.model.schema import GPU_SOURCES, NONE, SOURCES
from tests.gpu.mps import mps
from tests.gpu.training import KINDS, run_job

_TAKEN = "20:5"  # five steps from step 20 on
_SLACK = 0.05  # of a step: the host's steps and the GPU's do not end at the same moment


def bounds_ns(model: Model, step: StepExposure) -> tuple[int, int]:
    """Communication on the computing stream, and all of it, of one step of a process."""
    operations = model.tables["operations"]
    own = (operations["process"] == step.process) & (operations["step"] == step.step)
    own &= np.isin(operations["source"], [SOURCES.index(name) for name in GPU_SOURCES])
    own &= np.asarray(operations["part_of"]) == NONE
    stream = model.training.compute_streams.get(str(step.process), NONE)
    lengths = []
    for rows in (own & (operations["stream"] == stream), own):
        places = np.flatnonzero(rows)
        start, end = (np.asarray(operations[name])[places] for name in ("start_ns", "end_ns"))
        total = union_lengths(np.zeros(len(places), np.int64), start, end)[1].sum()
        lengths.append(int(total) if len(places) else 0)
    return lengths[0], lengths[1]


def check(capture: Path) -> dict[str, object]:
    """What the kernels of a capture say."""
    model = open_model(capture)
    exposure = kernel_exposure(model, traces_of(model))
    if exposure is None:
        return {"failures": model.training.failures, "files": model.training.kernel_files}
    inside = 0
    for step in exposure.steps:
        low, high = bounds_ns(model, step)
        slack = _SLACK * step.length_ns
        inside += low - slack <= step.exposed_ns <= high + slack
    names = ("length_ns", "compute_ns", "nccl_ns", "overlapped_ns", "exposed_ns", "idle_ns")
    check = exposure.check
    return {
        "traces": exposure.traces, "steps": len(exposure.steps), "steps within bounds": inside,
        **{name.replace("_ns", " us"): round(exposure.mean_ns(name) / 1e3, 1) for name in names},
        "NCCL kernels": check.kernels, "joined": check.joined, "compared": check.compared,
        "profiler longer by us": round(check.longer_ns / 1e3, 2),
        "95 % within us": round(check.spread_ns / 1e3, 2),
        "starts differ by us": round(check.later_ns / 1e3, 2),
        "modules": [part.name for part in exposure.modules[:8]],
        "failures": model.training.failures, "notes": list(exposure.notes),
    }  # fmt: skip


def main() -> None:
    """Runs each kind once."""
    for kind in sys.argv[1:] or KINDS:
        with tempfile.TemporaryDirectory() as directory, mps():
            capture = Path(directory) / "capture"
            median_us = run_job(kind, capture, "--torch", "--kernels-at", _TAKEN)
            answer = {"kind": kind, "median step us": round(median_us, 1), **check(capture)}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
