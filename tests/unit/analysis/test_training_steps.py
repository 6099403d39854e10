"""Steps of planted training jobs, and where their time goes."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ncclscope.analysis.training_steps import step_summary
from ncclscope.model.build import open_model
from ncclscope.model.periodic_steps import with_periodic_steps
from ncclscope.model.schema import NONE, NOT_SAMPLED
from tests.support.player import ncclscope
from tests.support.writer.training import (
    COMM_STREAM,
    COMPUTE_STREAM,
    MS,
    US,
    PlantedCall,
    Program,
    fsdp2_step,
    write_ddp,
    write_fsdp2,
)

_UNKNOWN = PlantedCall(None, None, None)


def test_the_time_of_a_step_is_that_of_its_parts(tmp_path: Path) -> None:
    write_fsdp2(tmp_path, steps=6, data_ns=5 * MS)
    steps = step_summary(open_model(tmp_path))
    assert steps is not None
    assert (steps.origin, steps.first, steps.last, steps.warm_up) == ("optimizer", 0, 5, 0)
    parts = steps.parts
    assert parts.data == pytest.approx(5 * MS, rel=0.01)
    assert parts.optimizer == pytest.approx(MS, rel=0.01)
    assert parts.rest < 0.01 * parts.length
    # 3 AllGathers, 2 prefetches, 3 ReduceScatters and 3 AllReduces of 200 µs each; the AllReduces
    # are on the computing stream.
    assert parts.nccl == pytest.approx(11 * 200 * US, rel=0.02)
    assert parts.exposed_low == pytest.approx(3 * 200 * US, rel=0.02)


def test_a_sample_of_kernels_says_nothing_about_all_of_them(tmp_path: Path) -> None:
    write_fsdp2(tmp_path, steps=6, data_ns=5 * MS)
    model = open_model(tmp_path)
    reasons = [*model.words.get("reason", ()), NOT_SAMPLED]
    steps = step_summary(replace(model, words={**model.words, "reason": reasons}))
    assert steps is not None
    assert (steps.parts.nccl, steps.parts.wait, steps.parts.exposed_low) == (None, None, None)
    assert steps.parts.data == pytest.approx(5 * MS, rel=0.01)


def test_first_steps_and_pauses_are_left_out(tmp_path: Path) -> None:
    program = Program(0, 1)
    for step in range(12):
        fsdp2_step(program, step, 2)
        if step in (0, 7):  # compilation; a checkpoint
            program.wait(100 * MS)
    program.write(tmp_path)
    steps = step_summary(open_model(tmp_path))
    assert steps is not None
    assert (steps.warm_up, steps.pauses, steps.longest_step) == (0, 2, 1)
    assert steps.p99_ns > 10 * steps.median_ns
    assert steps.parts.length < 1.1 * steps.median_ns


def test_tokens_and_the_share_of_the_peak(tmp_path: Path) -> None:
    programs = [Program(rank, 2) for rank in range(2)]
    for program in programs:
        facts = {"what": "facts", "device": "NVIDIA H200", "parameters": 10**9}
        program.context.append(facts)
        for step in range(4):
            with program.range("autograd.backward", 3):
                program.call("AllReduce", 64, _UNKNOWN)
            program.wait(100 * MS)
            program.mark("ncclscope.tokens", payload=1000)
            program.mark("ncclscope.step", payload=step)
        program.write(tmp_path)
    steps = step_summary(open_model(tmp_path))
    assert steps is not None
    assert steps.tokens_per_second == pytest.approx(2 * 1000 / 0.1, rel=0.01)
    assert steps.mfu == pytest.approx(6 * 10**9 * 1000 / 0.1 / 989e12, rel=0.01)


def test_steps_by_period_begin_behind_the_longest_pause(tmp_path: Path) -> None:
    program = Program(0, 1, groups=False)
    for step in range(9):
        program.wait(5 * MS)
        program.call("Broadcast", 8, _UNKNOWN)
        for _ in range(4):
            program.call("AllGather", 4096, _UNKNOWN)
        if step % 4 == 3:
            program.call("AllReduce", 1, _UNKNOWN)  # a log entry
        program.call("ReduceScatter", 512, _UNKNOWN)
    program.write(tmp_path)
    model = open_model(tmp_path)
    assert not model.has_context
    steps = with_periodic_steps(model).tables["operations"]["step"]
    sizes = [6 + (step % 4 == 3) for step in range(9)]
    assert steps.tolist() == np.repeat(np.arange(9), sizes).tolist()


def test_calls_without_a_period_have_no_steps(tmp_path: Path) -> None:
    program = Program(0, 1, groups=False)
    for size in range(1, 40):
        program.call("AllReduce", size * 16, _UNKNOWN)
    program.write(tmp_path)
    model = with_periodic_steps(open_model(tmp_path))
    assert (np.asarray(model.tables["operations"]["step"]) == NONE).all()


def test_reports_group_by_what_the_context_says(tmp_path: Path) -> None:
    write_fsdp2(tmp_path, steps=3)
    for key, calls in (
        ("step", {None: 2, 0: 22, 1: 22, 2: 22}),
        ("phase", {None: 2, "forward": 18, "backward": 48}),
        ("module", {None: 20, "layers.0": 18, "layers.1": 18, "layers.2": 12}),
        ("dimension", {"dp": 68}),
    ):
        done = ncclscope("report", tmp_path, "--json", "--by", key)
        report = json.loads(done.stdout)
        assert {row[key]: row["calls"] for row in report["operations"]} == calls
        csv = ncclscope("report", tmp_path, "--csv", "--by", key).stdout
        assert key in csv.splitlines()[0].split(",")


def test_reports_have_sections_of_steps_and_modules(tmp_path: Path) -> None:
    write_ddp(tmp_path)
    text = ncclscope("report", tmp_path).stdout
    for title in ("training steps", "where a step's time goes", "communication by module"):
        assert f"── {title} " in text
    assert "head … layers.2" in text
    training = json.loads(ncclscope("report", tmp_path, "--json").stdout)["training"]
    assert training["steps"]["known_by"] == "optimizer"
    assert [row["dimension"] for row in training["dimensions"]] == ["world"]
    page = tmp_path / "page.html"
    ncclscope("report", tmp_path, "--html", page)
    assert "communication by module" in page.read_text()


def test_reports_without_context_say_nothing_of_training(tmp_path: Path) -> None:
    program = Program(0, 1, groups=False)
    for _ in range(8):
        program.call("AllReduce", 64, _UNKNOWN, stream=COMM_STREAM)
        program.call("AllReduce", 64, _UNKNOWN, stream=COMPUTE_STREAM)
    program.write(tmp_path)
    assert "training" not in ncclscope("report", tmp_path).stdout
    assert "training" not in json.loads(ncclscope("report", tmp_path, "--json").stdout)
