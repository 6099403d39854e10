"""Findings about training steps of planted jobs."""

from pathlib import Path

from ncclscope.analysis.training_steps import step_summary
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


def _ddp(capture: Path, last_bytes: int, last_ns: int) -> None:
    """Steps whose last bucket has this size and takes this long."""
    buckets = [
        (40_000, ["head.weight"]),
        (40_000, ["layers.1.weight"]),
        (last_bytes, ["in.weight"]),
    ]
    program = Program(0, 1)
    listed = [{"bytes": size, "parameters": names} for size, names in buckets]
    program.context.append({"what": "buckets", "buckets": listed})
    for _ in range(8):
        with program.range("DistributedDataParallel.forward"):
            program.wait(2 * MS)
        with program.range("autograd.backward", layout.RANGE_ENGINE):
            for size, _ in buckets:
                program.wait(MS)
                length_ns = last_ns if size == last_bytes else 200 * US
                program.call("AllReduce", size // 4, _NONE, AUTOGRAD, length_ns=length_ns)
        program.wait(last_ns)  # the optimizer needs it
        with program.range("Optimizer.step#SGD.step"):
            program.wait(MS)
    program.write(capture)


def test_a_last_bucket_of_ddp_that_is_too_large_is_named(tmp_path: Path) -> None:
    _ddp(tmp_path, 400_000, 2 * MS)
    sentence = _findings(tmp_path)["bucket"].sentence
    assert (
        "the last bucket of DistributedDataParallel (in) has 400 KB, the others 40.0 KB" in sentence
    )
    assert "takes 2.00 ms when backward has ended" in sentence


def test_a_last_bucket_like_the_others_is_fine(tmp_path: Path) -> None:
    _ddp(tmp_path, 40_004, 200 * US)
    assert "bucket" not in _findings(tmp_path)


def _experts(capture: Path, heavy: dict[int, int]) -> None:
    """Eight ranks, four layers; `heavy`: by layer the rank that gets twice the tokens."""
    for rank in range(8):
        program = Program(rank, 8)
        for _ in range(12):
            for layer in range(4):
                times = 2 if heavy.get(layer) == rank else 1
                with program.range(f"layers.{layer}.experts", layout.RANGE_MODULE):
                    program.call("AllGather", 4096 * times, _NONE, length_ns=100 * US * times)
                program.wait(MS)
            with program.range("Optimizer.step#SGD.step"):
                program.wait(MS)
        program.write(capture)


def test_experts_that_are_uneven_in_single_layers_are_named_by_layer(tmp_path: Path) -> None:
    # Each rank in turn: all layers together are nearly even.
    _experts(tmp_path, {0: 1, 2: 5})
    finding = _findings(tmp_path, "imbalance")["module"]
    assert finding.ranks == (1, 5)
    for part in ("in 2 modules", "layers.0.experts (rank 1: 2 times)", "layers.2.experts (rank 5"):
        assert part in finding.sentence


def test_a_rank_that_is_heavy_everywhere_has_its_layers_in_one_finding(tmp_path: Path) -> None:
    _experts(tmp_path, {0: 3, 1: 3, 2: 3})
    findings = _findings(tmp_path, "imbalance")
    assert list(findings) == ["bytes"]
    assert "rank 3 (" in findings["bytes"].sentence
    assert "uneven in layers.0.experts (rank 3: 2 times)" in findings["bytes"].sentence


def test_even_experts_are_fine(tmp_path: Path) -> None:
    _experts(tmp_path, {})
    assert _findings(tmp_path, "imbalance") == {}


def test_pauses_are_no_degradation(tmp_path: Path) -> None:
    """Checkpoints of rank 0, an evaluation of all ranks, and garbage collection of rank 2, all in
    the second half of the run.
    """
    programs, steps = [Program(rank, 4) for rank in range(4)], 48
    free_ns = 0  # when the last collective ended
    for step in range(steps):
        for program in programs:
            program.now_ns = max(program.now_ns, free_ns)
            with program.range("DistributedDataParallel.forward"):
                program.wait(3 * MS)
            if step > steps // 2 and step % 6 == 0 and program.rank == 0:
                with program.range("save_checkpoint"):
                    program.wait(60 * MS)
            if step == 40:
                with program.range("evaluate"):
                    program.wait(200 * MS)
            if step in (30, 37, 44) and program.rank == 2:
                program.wait(25 * MS)
        last_ns = max(program.now_ns for program in programs)
        for program in programs:
            with program.range("autograd.backward", layout.RANGE_ENGINE):
                waiting_ns = last_ns - program.now_ns
                program.call("AllReduce", 4096, _NONE, length_ns=500 * US + waiting_ns)
            with program.range("Optimizer.step#SGD.step"):
                program.wait(MS)
        free_ns = last_ns + 600 * US
    for program in programs:
        program.write(tmp_path)
    model = open_model(tmp_path)
    families = {finding.family for finding in diagnose(model, None).findings}
    assert not families & {"degradation", "intra_inter", "slow_link"}
    steps_of_job = step_summary(model)
    assert steps_of_job is not None
    assert steps_of_job.pauses == 6  # steps 30, 36, 37, 40, 42 and 44


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


def test_a_straggler_is_late_for_a_module(tmp_path: Path) -> None:
    """The backward pass of one block takes longer on one rank."""
    programs = [Program(rank, 4) for rank in range(4)]
    for _ in range(30):
        for program in programs:
            with program.range("autograd.backward", layout.RANGE_ENGINE):
                for layer in (2, 1, 0):
                    extra_ns = 8 * MS if layer == 1 else 0
                    late_ns = extra_ns if program.rank == 2 else 0
                    with program.range(f"FSDP::post_backward_reduce (layers.{layer})"):
                        program.wait(MS + late_ns)
                        wait_ns = extra_ns - late_ns  # the others wait in the collective
                        program.call("ReduceScatter", 4096, _NONE, length_ns=200 * US + wait_ns)
                    program.wait(wait_ns + MS)
            with program.range("Optimizer.step#SGD.step"):
                program.wait(MS)
    for program in programs:
        program.write(tmp_path)
    (finding,) = _findings(tmp_path, "straggler").values()
    assert finding.ranks == (2,)
    assert "mostly to ReduceScatter on dp of layers.1, in backward; " in finding.sentence


def test_a_snapshot_says_where_in_its_training_a_process_is(tmp_path: Path) -> None:
    program = Program(0, 1)
    for step in range(3):
        fsdp2_step(program, step, 2)
    program.push("autograd.backward", layout.RANGE_ENGINE)
    program.push("FSDP::pre_backward (layers.17)", thread=AUTOGRAD)
    program.write(tmp_path)
    snapshot = read_snapshot(tmp_path / program.who.folder, 0)
    assert snapshot.training == "step 3, backward, layers.17"
