"""Pipelines of real PyTorch on the simulated NCCL: what each send and receive is for."""

from collections import Counter
from pathlib import Path

import pytest

import ncclscope
from tests.support.packages import needs
from tests.support.torch_jobs import run_torch

pytestmark = needs("torch")

# Schedules with the stages that each of two ranks has; a stage's rows follow from its place.
_SCHEDULES = {"Schedule1F1B": 1, "ScheduleGPipe": 1, "ScheduleInterleaved1F1B": 2}
_STEPS, _MICROBATCHES, _ROWS = 2, 4, 2
# Between stages k and k + 1 of a schedule: as many columns, so that sizes say what a call is.
_COLUMNS = {
    schedule: [64 * (1 + first + k) for k in range(5)]
    for schedule, first in zip(_SCHEDULES, (0, 8, 16), strict=True)
}
_IMPORT = """
import torch.distributed.pipelining.schedules as kinds
from torch.distributed.pipelining import PipelineStage
"""
_BEGIN = """
begin("simulated")
"""
_ONE_CALL = """
assert "torch.distributed.pipelining" not in sys.modules
dist.all_reduce(torch.ones(1))
"""
_PIPELINES = f"""
for name, stages_a_rank in {_SCHEDULES}.items():
    columns, total = {_COLUMNS}[name], ranks * stages_a_rank
    own = range(rank, total, ranks)
    modules = [nn.Linear(columns[k], columns[k + 1]) for k in range(total)]
    stages = [PipelineStage(modules[k], k, total, torch.device("cpu")) for k in own]
    optimizer = torch.optim.SGD([p for k in own for p in modules[k].parameters()], lr=0.1)
    schedule = getattr(kinds, name)(
        stages if stages_a_rank > 1 else stages[0], {_MICROBATCHES}, loss_fn=nn.functional.mse_loss
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range({_STEPS}):
            torch.manual_seed(step)
            batch = torch.randn({_ROWS * _MICROBATCHES}, columns[0])
            target = torch.randn({_ROWS * _MICROBATCHES}, columns[total])
            with torch.profiler.record_function("forward-backward"):
                schedule.step(
                    *[batch] * (0 in own), **{{"target": target}} if total - 1 in own else {{}}
                )
            optimizer.step()
            optimizer.zero_grad()
    print(name, [p.sum().item() for k in own for p in modules[k].parameters()])
    print(sorted(str(one.message) for one in caught))
dist.destroy_process_group()
"""


def _truth() -> Counter[tuple[int, str, int, str, str]]:
    """Rank, function, elements, phase and stage of every send and receive."""
    calls: Counter[tuple[int, str, int, str, str]] = Counter()
    for schedule, stages_a_rank in _SCHEDULES.items():
        for stage in range(2 * stages_a_rank - 1):
            elements = _ROWS * _COLUMNS[schedule][stage + 1]
            for phase, source, target in (
                ("forward", stage, stage + 1),
                ("backward", stage + 1, stage),
            ):
                for function, at in (("Send", source), ("Recv", target)):
                    call = at % 2, function, elements, phase, f"stage {at}"
                    calls[call] += _STEPS * _MICROBATCHES
    return calls


@pytest.mark.parametrize(
    "beginning",
    [
        pytest.param(_IMPORT + _BEGIN, id="imported before NCCL"),
        pytest.param(_BEGIN + _ONE_CALL + _IMPORT, id="imported after the first call"),
    ],
)
def test_every_send_and_receive_has_its_phase_and_stage(beginning: str, tmp_path: Path) -> None:
    """The loop around a schedule has a name of its own, which is no phase of what is inside."""
    program = "import sys\n" + beginning + _PIPELINES
    plain = run_torch(tmp_path, program)
    assert run_torch(tmp_path, program, record="steps") == plain  # the same numbers and warnings
    capture = ncclscope.open(tmp_path / "capture")
    assert capture.model.training.failures == []
    rows = capture.sql(
        'select global_rank, "function", count, phase, module_name, count(*) from operations '
        "where count >= 64 and module_name is not null group by all"
    ).fetchall()
    truth = _truth()
    assert {row[:5]: row[5] for row in rows} == truth
    # Calls with which PyTorch learns shapes have no stage; nothing else has none.
    all_calls = capture.sql(
        "select count(*) from operations where module_name is null and count in "
        f"({', '.join(str(call[2]) for call in truth)})"
    ).fetchall()
    assert all_calls == [(0,)]
    # Every range has ended, and one is around each call, with the call's micro-batch.
    texts = capture.sql(
        "select text, count(*) from ranges where text like 'pipeline.%' and end_ns is not null "
        "and not contains(text, 'pipeline.forward stage') group by 1"
    ).fetchall()
    sends = [(text, found) for text, found in texts if ".send" in text or ".receive" in text]
    assert sum(found for _, found in sends) == sum(truth.values())
    assert {text.split()[-1] for text, _ in sends} == {str(k) for k in range(_MICROBATCHES)}
    (still_open,) = capture.sql("select count(*) from ranges where end_ns is null").fetchall()
    assert still_open == (0,)
