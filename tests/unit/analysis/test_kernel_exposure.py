"""Exposed communication of planted kernels, against a count of every microsecond."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ncclscope.analysis.kernel_exposure import KernelExposure, kernel_exposure
from ncclscope.capture import layout
from ncclscope.ingest.kernel_files import read_kernels, traces_of
from ncclscope.model.build import open_model
from tests.support.player import ncclscope
from tests.support.writer.kernel_traces import write_nsys, write_torch_trace
from tests.support.writer.training import (
    AUTOGRAD,
    MS,
    US,
    PlantedCall,
    PlantedKernel,
    Program,
)

_STEPS = 6
TP = 1  # a second communicator: ReduceScatters are in it


def _step(program: Program, step: int) -> None:
    """Forward with a prefetched AllGather, backward with a ReduceScatter that outlasts it."""
    with program.range("FSDP::root_pre_forward"):
        for layer in range(2):
            name = f"layers.{layer}"
            with program.range(f"FSDP::all_gather ({name})"):
                program.call("AllGather", 4096, PlantedCall(step, "forward", name))
            program.compute((300 + 40 * layer + 10 * program.rank) * US)
            program.wait(MS)
    with program.range("autograd.backward", layout.RANGE_ENGINE):
        for layer in (1, 0):
            program.compute(500 * US)
            program.wait(MS // 2)
            with program.range(f"FSDP::post_backward_reduce (layers.{layer})", thread=AUTOGRAD):
                truth = PlantedCall(step, "backward", f"layers.{layer}")
                program.call("ReduceScatter", 4096, truth, AUTOGRAD, length_ns=700 * US, comm=TP)
    with program.range("Optimizer.step#AdamW.step"):
        program.compute(100 * US)
        program.wait(MS)


def _job(capture: Path, ranks: int = 2) -> list[Program]:
    programs = [Program(rank, ranks) for rank in range(ranks)]
    for program in programs:
        assert program.communicator("tp") == TP
        for step in range(_STEPS):
            _step(program, step)
        program.write(capture)
    return programs


def _covered(kernels: list[PlantedKernel], start_ns: int, end_ns: int) -> np.ndarray:
    """Which microseconds of a stretch any of these kernels ran in."""
    busy = np.zeros((end_ns - start_ns) // US, bool)
    for kernel in kernels:
        first, last = (max(ns - start_ns, 0) // US for ns in (kernel.start_ns, kernel.end_ns))
        busy[first:last] = True
    return busy


def _is_nccl(kernel: PlantedKernel) -> bool:
    return kernel.truth is not None


def _exposure(capture: Path, files: list[Path]) -> KernelExposure:
    traces = [trace for path in files for trace in read_kernels(path)]
    exposure = kernel_exposure(open_model(capture), traces)
    assert exposure is not None
    return exposure


def _check_against_truth(exposure: KernelExposure, programs: list[Program], steps: int) -> None:
    assert len(exposure.steps) == steps * len(programs)
    truths: dict[str | None, Any] = defaultdict(lambda: np.zeros(2, np.int64))
    model_origin = {step.process: step.start_ns for step in reversed(exposure.steps)}
    for step in exposure.steps:
        program = programs[step.process]
        own = [k for k in program.kernels if k.launch_ns >= 0]
        gap_ns = _origin_of(program, exposure, step.process) - model_origin[step.process]
        start, end = step.start_ns + gap_ns, step.end_ns + gap_ns
        nccl = _covered([k for k in own if _is_nccl(k)], start, end)
        compute = _covered([k for k in own if not _is_nccl(k)], start, end)
        assert abs(step.length_ns - len(nccl) * US) <= US
        for measured_ns, truth in (
            (step.nccl_ns, nccl),
            (step.compute_ns, compute),
            (step.overlapped_ns, nccl & compute),
            (step.exposed_ns, nccl & ~compute),
            (step.idle_ns, ~nccl & ~compute),
        ):
            assert abs(measured_ns - int(truth.sum()) * US) <= 4 * US
        for kernel in own:
            if kernel.truth is None:
                continue
            here = _covered([kernel], start, end)
            for part in (kernel.truth.module, "tp" if "ReduceScatter" in kernel.name else "dp"):
                truths[part] += np.array((here.sum(), (here & ~compute).sum())) * US
    assert exposure.steps[0].exposed_ns > 100 * US  # the case is not a trivial one
    found = {
        part.name: (part.nccl_ns, part.exposed_ns)
        for part in (*exposure.modules, *exposure.communicators)
    }
    assert set(found) == set(truths) == {"layers.0", "layers.1", "dp", "tp"}
    assert len({exposed_ns for _, exposed_ns in found.values()}) == 4, "no two are alike"
    for name, times_ns in found.items():
        assert np.abs(times_ns - truths[name]).max() <= 4 * US * len(exposure.steps)


def _origin_of(program: Program, exposure: KernelExposure, process: int) -> int:
    """The planted start of the first measured step's first kernel."""
    first = min(step.step for step in exposure.steps if step.process == process)
    own = [k for k in program.kernels if k.truth is not None and k.truth.step == first]
    return min(k.start_ns for k in own)


@pytest.mark.parametrize("late_ns", [0, 3 * MS, -7 * MS])
def test_exposure_is_exact_whatever_the_profilers_clock_says(tmp_path: Path, late_ns: int) -> None:
    programs = _job(tmp_path / "capture")
    files = [
        write_torch_trace(tmp_path / f"rank{p.rank}.json", p, p.kernels, late_ns) for p in programs
    ]
    exposure = _exposure(tmp_path / "capture", files)
    _check_against_truth(exposure, programs, _STEPS - 1)  # the last one is cut off
    assert exposure.check.joined == exposure.check.kernels == 2 * _STEPS * 4
    assert abs(exposure.check.longer_ns) <= US


def test_an_export_of_nsight_systems_says_the_same(tmp_path: Path) -> None:
    (program,) = _job(tmp_path / "capture", ranks=1)
    by_torch = _exposure(
        tmp_path / "capture", [write_torch_trace(tmp_path / "a.json", program, program.kernels)]
    )
    nsys = _exposure(
        tmp_path / "capture", [write_nsys(tmp_path / "a.sqlite", program, program.kernels)]
    )
    _check_against_truth(nsys, [program], _STEPS - 1)
    assert len(nsys.steps) == len(by_torch.steps) > 0
    for one, other in zip(by_torch.steps, nsys.steps, strict=True):
        for name in ("length_ns", "compute_ns", "nccl_ns", "overlapped_ns", "idle_ns"):
            assert abs(getattr(one, name) - getattr(other, name)) <= 2 * US


def test_a_copy_keeps_the_gpu_busy_and_hides_nothing(tmp_path: Path) -> None:
    (program,) = _job(tmp_path / "capture", ranks=1)
    without = _exposure(
        tmp_path / "capture", [write_torch_trace(tmp_path / "a.json", program, program.kernels)]
    )
    step = without.steps[2]
    copies = [
        PlantedKernel("Memcpy HtoD (Pinned -> Device)", k.launch_ns, k.start_ns, k.end_ns)
        for k in program.kernels
        if _is_nccl(k)
    ]
    file = write_torch_trace(tmp_path / "b.json", program, [*program.kernels, *copies])
    assert _exposure(tmp_path / "capture", [file]).steps[2].exposed_ns == step.exposed_ns
    copy = PlantedKernel("Memcpy DtoH", step.start_ns + US, step.start_ns, step.end_ns)
    file = write_torch_trace(tmp_path / "c.json", program, [*program.kernels, copy])
    busy = _exposure(tmp_path / "capture", [file]).steps[2]
    assert busy.idle_ns <= US < step.idle_ns
    assert busy.exposed_ns == step.exposed_ns


def test_a_trace_of_the_capture_itself_is_in_the_report(tmp_path: Path) -> None:
    program = Program(0, 1)
    program.communicator("tp")
    for step in range(_STEPS):
        _step(program, step)
    ends = list(range(1, 4))
    first = [k for k in program.kernels if k.truth and k.truth.step in ends]
    window = min(k.launch_ns for k in first), max(k.launch_ns for k in first)
    taken = [k for k in program.kernels if window[0] <= k.launch_ns <= window[1] + MS]
    offset = program.who.realtime_offset_ns
    noted = [window[0] - 30 * US + offset, window[1] + 2 * MS + offset]
    program.context += [
        {"what": "kernels", "file": "kernels.0.json", "steps": 3, "ends_ns": noted},
        {"what": "kernels", "file": "", "why": "another tool profiles CUDA"},
        {"what": "kernels", "file": "../../outside.json", "ends_ns": noted},
    ]
    program.write(tmp_path)
    write_torch_trace(tmp_path / program.who.folder / "kernels.0.json", program, taken)
    model = open_model(tmp_path)
    assert model.training.kernel_files == [f"{program.who.folder}/kernels.0.json"]
    assert "kernels: another tool profiles CUDA" in model.training.failures
    exposure = kernel_exposure(model, traces_of(model))
    assert exposure is not None
    assert [step.step for step in exposure.steps] == ends
    report = ncclscope("report", str(tmp_path)).stdout
    assert "exposed communication, measured" in report
    assert "12 of 12 NCCL kernels" in report
    answer = json.loads(ncclscope("report", str(tmp_path), "--json").stdout)["kernel_exposure"]
    assert [step["step"] for step in answer["steps"]] == ends


def test_a_file_of_another_run_is_refused(tmp_path: Path) -> None:
    _job(tmp_path / "capture", ranks=1)
    other = Program(5, 8)
    other.compute(MS)
    file = write_torch_trace(tmp_path / "rank5.json", other, other.kernels)
    said = ncclscope("report", str(tmp_path / "capture"), "--kernels", str(file))
    assert said.returncode == 2
    assert "no process of" in said.stderr
    file.write_text('{"traceEvents": []}')
    said = ncclscope("report", str(tmp_path / "capture"), "--kernels", str(file))
    assert "holds no CUDA kernels" in said.stderr
