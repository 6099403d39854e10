"""CUDA kernels of some steps, asked of a running PyTorch job: the CPU's PyTorch has the profiler,
and the test plants the kernels that a GPU would have run.
"""

import json
import threading
from pathlib import Path
from typing import Any

from ncclscope.analysis.kernel_exposure import kernel_exposure
from ncclscope.capture.context_lines import read_context
from ncclscope.capture.housekeeping import process_folders
from ncclscope.ingest.kernel_files import traces_of
from ncclscope.model.build import open_model
from ncclscope.model.model import Model
from tests.support.packages import needs
from tests.support.player import ncclscope
from tests.support.torch_jobs import run_torch
from tests.support.waiting import eventually
from tests.support.writer.kernel_traces import torch_trace_events
from tests.support.writer.training import US, PlantedKernel

pytestmark = needs("torch")

_JOB = """
import pathlib, time
begin("simulated")
ddp = nn.parallel.DistributedDataParallel(Net(), bucket_cap_mb=0.005)
optimizer = torch.optim.AdamW(ddp.parameters())
def step():
    nn.functional.cross_entropy(ddp(torch.ones(8, 32)), torch.ones(8, dtype=torch.long)).backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.002)
stop, last, number = pathlib.Path(os.environ["STOP"]), 1 << 60, 0
agreed = stop.with_name("agreed")
while number < last:  # ranks are never more than a step apart
    step()
    number += 1
    if rank == 0 and stop.exists() and last == 1 << 60:
        agreed.with_name("new").write_text(str(number + 3))
        agreed.with_name("new").rename(agreed)
    if agreed.exists():
        last = int(agreed.read_text())
before = dict(torch.autograd.profiler.__dict__)
end_of_ranges = torch.autograd.profiler.record_function.__exit__
taker = sys.modules["_ncclscope_recorder"].kernel_taker
taker.ask(50)
step(), step()
with torch.profiler.profile() as own:  # the job's own profiler takes the place of ours
    step()
assert own.events()
step()
assert {name: torch.autograd.profiler.__dict__[name] for name in before} == before
assert torch.autograd.profiler.record_function.__exit__ is end_of_ranges
with torch.profiler.profile() as own:
    taker.ask(1)
    step(), step()
assert own.events()
os.environ["CUDA_INJECTION64_PATH"] = "/opt/nvidia/nsys/libToolsInjection64.so"
taker.ask(1)
step()
dist.destroy_process_group()
"""
_LONG, _SHORT = 300 * US, 100 * US  # NCCL's kernels; computing starts with them, and ends before


def test_ctl_takes_kernels_and_the_report_says_what_they_hide(tmp_path: Path) -> None:
    capture, stop = tmp_path / "capture", tmp_path / "stop"
    outcome: list[Any] = []

    def run() -> None:
        outcome.append(run_torch(tmp_path, _JOB, record="steps", STOP=str(stop)))

    job = threading.Thread(target=run)
    job.start()
    try:
        eventually(lambda: capture.is_dir() and len(_folders_with_torch(capture)) == 2, 60)
        said = ncclscope("ctl", capture, "--kernels", "3")
        assert said.returncode == 0, said.stderr
        assert said.stdout.startswith("2 of 2 processes took the kernels of 3 steps\n")
    finally:
        stop.touch()
        job.join()
    assert outcome == [["", ""]]
    model = open_model(capture)
    for process, row in enumerate(model.processes):
        taken, *refused = read_context(capture / row.folder).kernels
        assert (taken.name, len(taken.ends_ns)) == ("kernels.0.json", 4)
        assert [file.why for file in refused] == [
            "the job started a profiler of its own",
            "RuntimeError: the job's own profiler runs",
            "another tool profiles CUDA: CUDA_INJECTION64_PATH is set",
        ]
        _plant(model, process, capture / row.folder / taken.name, taken.ends_ns)
    model = open_model(capture)
    exposure = kernel_exposure(model, traces_of(model))
    assert exposure is not None
    assert len(exposure.steps) == 2 * 3
    assert exposure.check.joined == exposure.check.kernels == 2 * 3 * 3  # three buckets a step
    assert {part.name for part in exposure.modules} == {"layers.0", "layers.1", "head … layers.2"}
    for step in exposure.steps:
        assert abs(step.nccl_ns - 3 * _LONG) < 5 * US
        assert abs(step.exposed_ns - 3 * (_LONG - _SHORT)) < 5 * US
        assert abs(step.compute_ns - 3 * _SHORT) < 5 * US


def _folders_with_torch(capture: Path) -> list[Path]:
    return [f for f in process_folders(capture) if "torch" in read_context(f).facts]


def _plant(model: Model, process: int, path: Path, ends_ns: tuple[int, ...]) -> None:
    """Adds the kernels that a GPU would have run: one of NCCL's for each AllReduce in the steps,
    2 ms apart, and computing beside a third of it.
    """
    operations, trace = model.tables["operations"], json.loads(path.read_text())
    assert any(event.get("cat") == "cpu_op" for event in trace["traceEvents"])
    offset_ns = model.realtime_offset_ns
    kernels, at = [], ends_ns[0] - offset_ns
    own = operations["process"] == process
    for launch_ns in sorted(operations["launch_ns"][own].tolist()):
        if ends_ns[0] - offset_ns <= launch_ns <= ends_ns[-1] - offset_ns:
            at = max(at, launch_ns) + _LONG
            kernels += [
                PlantedKernel("ncclDevKernel_AllReduce_Sum_f32", launch_ns, at, at + _LONG),
                PlantedKernel("gemm", launch_ns, at, at + _SHORT),
            ]
    base_ns = trace.get("baseTimeNanoseconds", 0)
    trace["traceEvents"] += torch_trace_events(
        kernels, offset_ns - base_ns, model.processes[process].pid
    )
    path.write_text(json.dumps(trace))
