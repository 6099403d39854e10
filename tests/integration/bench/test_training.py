"""`ncclscope bench --train` as far as it goes without a GPU: real PyTorch on the simulated NCCL."""

import os
from dataclasses import replace

from ncclscope.bench.profilers.profiler_table import known_profilers
from ncclscope.bench.training.comparison import training_rows
from ncclscope.bench.training.trials import COUNTING, TrainingSettings, train_once
from ncclscope.native import empty_plugin_path
from tests.support.packages import needs
from tests.support.paths import ROOT

STEPS, RANKS = 3, 2
needs_torch = needs("torch")


@needs_torch
def test_every_call_of_a_training_job_is_counted_and_recorded() -> None:
    """The plugin that counts gets the same callbacks as ncclscope, behind it in one process."""
    own = known_profilers()["ncclscope-trace"]
    variables = {**own.variables, "NCCLSCOPE_CHAIN": str(empty_plugin_path())}
    counting = replace(own, name=COUNTING, variables=variables)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "NCCLSCOPE_BENCH_TRAINING_BACKEND": "tests.support.torch_backend:simulated",
    }
    settings = TrainingSettings(
        "densenet121", RANKS, 0, steps=STEPS, warm_up=1, batch=1, image=32, layers=(1, 1),
        environment=environment,
    )  # fmt: skip
    trial = train_once(counting, 0, settings)
    assert trial.failure == ""
    assert [len(steps) for steps in trial.step_ns] == [STEPS] * RANKS
    assert trial.window_steps == 0
    assert trial.machine["backend"] == "simulated"
    recorded = [
        sum(records.count for records in trial.records if records.rank == rank)
        for rank in range(RANKS)
    ]
    assert recorded == list(trial.counted)
    reduced = sum(own.count for own in trial.records if own.function == "AllReduce")
    assert reduced >= RANKS * (STEPS + 1), "gradients of every step"
    (row,) = training_rows([counting], [trial], settings.warm_up)
    assert (row.calls_recorded, row.calls_made) == (sum(recorded), sum(recorded))
    assert row.reported_ms
    assert row.share_of_steps is not None
    assert row.share_of_steps.value > 0


@needs_torch
def test_a_gpt_trains_under_fsdp2_and_pytorchs_profiler_records_its_last_steps() -> None:
    """On gloo, which makes no call of NCCL's."""
    steps = 7
    settings = TrainingSettings(
        "gpt", 1, 0, steps=steps, warm_up=1, batch=1, length=16, layers=(1,),
        environment=dict(os.environ),
    )  # fmt: skip
    own = known_profilers()["torch-profiler"]
    trial = train_once(own, 0, settings)
    assert trial.failure == trial.problem == ""
    assert trial.machine["backend"] == "gloo"
    assert [len(times) for times in trial.step_ns] == [steps]
    assert trial.window_steps == 5
    assert trial.bytes_written > 0
    (row,) = training_rows([own], [trial], settings.warm_up)
    assert row.remark.startswith("the last 5 steps alone")


@needs_torch
def test_a_job_that_fails_says_its_last_words() -> None:
    environment = {**os.environ, "NCCLSCOPE_BENCH_TRAINING_BACKEND": "no_such_module:x"}
    settings = TrainingSettings("gpt", 1, 0, steps=1, environment=environment)
    trial = train_once(known_profilers()["none"], 0, settings)
    assert trial.failure.startswith("rank 0 ended with exit code 1\n")
    assert "no_such_module" in trial.failure
