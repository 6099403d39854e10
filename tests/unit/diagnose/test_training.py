"""Findings about training steps of planted jobs."""

from pathlib import Path

from ncclscope.capture import layout
from ncclscope.diagnose.diagnosis import diagnose
from ncclscope.diagnose.finding import Finding
from ncclscope.model.build import open_model
from ncclscope.snapshot.process import read_snapshot
from tests.support.writer.training import (
    AUTOGRAD,
    COMPUTE_STREAM,
    MS,
    US,
    PlantedCall,
    Program,
    fsdp2_step,
    write_fsdp2,
)

_NONE = PlantedCall(None, None, None)


def _findings(capture: Path, family: str = "training") -> dict[str, Finding]:
    findings = diagnose(open_model(capture), None).findings
    return {finding.kind: finding for finding in findings if finding.family == family}


def test_a_job_whose_gpus_wait_for_data_is_data_bound(tmp_path: Path) -> None:
    write_fsdp2(tmp_path, steps=8, data_ns=20 * MS)
    finding = _findings(tmp_path)["data"]
    assert finding.severity == "critical"
    assert "wait 20.0 ms for data, 66 % of their time" in finding.sentence


def test_quick_data_loaders_and_hidden_communication_are_fine(tmp_path: Path) -> None:
    write_fsdp2(tmp_path, steps=8, data_ns=MS // 10)
    assert _findings(tmp_path) == {}


def test_communication_on_the_computing_stream_is_named_by_module(tmp_path: Path) -> None:
    program = Program(0, 1)
    program.context.append({"what": "facts", "compute_stream": COMPUTE_STREAM})
    for _ in range(8):
        with program.range("layers.1", layout.RANGE_MODULE):
            program.call("AllReduce", 4096, _NONE, stream=COMPUTE_STREAM, length_ns=3 * MS)
            program.wait(3 * MS)
        program.wait(5 * MS)
        with program.range("Optimizer.step#SGD.step"):
            program.wait(MS)
    program.write(tmp_path)
    finding = _findings(tmp_path)["serial"]
    assert "AllReduce of layers.1 on dp" in finding.sentence


def test_all_gathers_that_are_not_called_ahead_are_noticed(tmp_path: Path) -> None:
    program = Program(0, 1)
    for _ in range(8):
        with program.range("autograd.backward", layout.RANGE_ENGINE):
            for layer in range(4):
                program.push(f"FSDP::pre_backward (layers.{layer})", thread=AUTOGRAD)
                program.push(f"FSDP::all_gather (layers.{layer})", thread=AUTOGRAD)
                program.call("AllGather", 4096, _NONE, AUTOGRAD)
                program.pop(AUTOGRAD)
                program.pop(AUTOGRAD)
                program.wait(2 * MS)
        with program.range("Optimizer.step#SGD.step"):
            program.wait(MS)
    program.write(tmp_path)
    assert "32 of 32 AllGathers in backward" in _findings(tmp_path)["prefetch"].sentence


def test_a_straggler_is_late_in_a_phase(tmp_path: Path) -> None:
    programs = [Program(rank, 4) for rank in range(4)]
    for _ in range(30):
        for program in programs:
            late_ns = 8 * MS if program.rank == 2 else 0
            with program.range("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
                program.wait(MS + late_ns)
            with program.range("autograd.backward", layout.RANGE_ENGINE):
                wait_ns = 8 * MS - late_ns  # the others wait in the collective
                program.call("AllReduce", 4096, _NONE, length_ns=200 * US + wait_ns)
                program.wait(wait_ns + MS)
            with program.range("Optimizer.step#SGD.step"):
                program.wait(MS)
    for program in programs:
        program.write(tmp_path)
    findings = _findings(tmp_path, "straggler").values()
    assert [finding.ranks for finding in findings] == [(2,)]
    assert all(", in data loading; " in finding.sentence for finding in findings)


def test_a_snapshot_says_where_in_its_training_a_process_is(tmp_path: Path) -> None:
    program = Program(0, 1)
    for step in range(3):
        fsdp2_step(program, step, 2)
    program.push("autograd.backward", layout.RANGE_ENGINE)
    program.push("FSDP::pre_backward (layers.17)", thread=AUTOGRAD)
    program.write(tmp_path)
    snapshot = read_snapshot(tmp_path / program.who.folder, 0)
    assert snapshot.training == "step 3, backward, layers.17"
