"""Training below profilers: communication's share of the steps, remarks, baselines, forms."""

import csv
import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ncclscope.bench.profilers.profiler_table import Profiler, known_profilers
from ncclscope.bench.profilers.recording import Records
from ncclscope.bench.profilers.selection import AGAIN
from ncclscope.bench.training.comparison import (
    TrainingRow,
    function_table,
    training_rows,
    training_table,
)
from ncclscope.bench.training.files import (
    TrainingRun,
    as_csv,
    as_json,
    read_run,
    settings_json,
    text_lines,
)
from ncclscope.bench.training.fsdp2 import find_fully_shard
from ncclscope.bench.training.page import as_html
from ncclscope.bench.training.steps_share import NO_TIMES, NOT_ALL, SAMPLE, calls_a_step
from ncclscope.bench.training.trials import TrainingSettings, TrainingTrial
from ncclscope.cli import main
from ncclscope.errors import NcclscopeError

MS = 1_000_000
STEPS, WARM_UP = 10, 2
TABLE = known_profilers()


def trained(profiler: str, number: int, step_ms: int, **values: object) -> TrainingTrial:
    """A run of two ranks whose ten measured steps take equally long."""
    steps = ((step_ms * MS,) * STEPS,) * 2
    trial = TrainingTrial(
        profiler, number, steps, (10**9, 10**9),
        machine={"backend": "gloo", "device": "no GPU", "torch": "2", "nccl": ""},
    )  # fmt: skip
    return replace(trial, **values)  # type: ignore[arg-type]


def recorded(*times_ms: float, rank: int = 0, source: str = "gpu", size: int = 1024) -> Records:
    """Records of AllReduces on one rank; a negative time: none."""
    times = tuple(round(time_ms * MS) if time_ms >= 0 else -1 for time_ms in times_ms)
    return Records(rank, "AllReduce", size, len(times), times, timed=len(times), source=source)


def on_both(records: Records) -> tuple[Records, Records]:
    return records, replace(records, rank=1)


def row_of(profiler: str, *trials: TrainingTrial) -> TrainingRow:
    (row,) = training_rows([TABLE[profiler]], trials, WARM_UP)
    return row


# ---- communication's share of the steps ----
@pytest.mark.parametrize(
    ("count", "each"),
    [
        (35, 1),
        (36, 1),  # one more at the start
        (34, 1),  # the first step made another one
        (280, 8),
        (1, 0),
        (5, 0),
        (20, None),  # of 35, 15 were dropped
        (147, None),  # of 280
        (19, None),
    ],
)
def test_calls_of_each_step(count: int, each: int | None) -> None:
    assert calls_a_step(count, 35, 5) == each


def test_calls_of_warm_up_and_start_are_not_in_the_share() -> None:
    """Ten steps of 100 ms with calls of 20 and 30 ms; those of warm-up and start take 500 ms."""
    slow = (500.0,) * WARM_UP
    records = (
        *on_both(recorded(*slow, *[20.0] * STEPS)),
        *on_both(recorded(500.0, *slow, *[30.0] * STEPS, size=2048)),
        *on_both(recorded(500.0, size=4096)),
    )
    row = row_of("inspector", trained("inspector", 0, 100, records=records))
    assert (row.reported_ms, row.mean_step_ms) == (pytest.approx(50), 100)
    assert row.share_of_steps is not None
    assert row.share_of_steps.value == pytest.approx(0.5)


def test_the_share_is_taken_on_each_rank_and_may_exceed_all() -> None:
    """Rank 0: 240 of 100 ms; rank 1: 20 of 200 ms. The mean of 2.4 and 0.1."""
    steps = ((100 * MS,) * STEPS, (200 * MS,) * STEPS)
    records = (
        recorded(*[240.0] * (STEPS + WARM_UP)),
        recorded(*[20.0] * (STEPS + WARM_UP), rank=1),
    )
    row = row_of("inspector", trained("inspector", 0, 0, step_ns=steps, records=records))
    assert (row.reported_ms, row.mean_step_ms) == (pytest.approx(130), 150)
    assert row.share_of_steps is not None
    assert row.share_of_steps.value == pytest.approx(1.25)
    assert "125.0 %" in training_table("x", [row]).rows[0]


def test_several_calls_of_a_size_in_each_step() -> None:
    """Three in each: 5 + 10 + 15 of 100 ms."""
    records = on_both(recorded(*[5.0, 10.0, 15.0] * (STEPS + WARM_UP)))
    row = row_of("inspector", trained("inspector", 0, 100, records=records))
    assert row.share_of_steps is not None
    assert row.share_of_steps.value == pytest.approx(0.3)


def test_calls_that_were_dropped_leave_no_share() -> None:
    """Rank 1 has 7 of 12 calls: the time of the others is not known."""
    whole, part = recorded(*[10.0] * 12), recorded(*[10.0] * 7, rank=1)
    row = row_of("inspector", trained("inspector", 0, 100, records=(whole, part)))
    assert (row.share_of_steps, row.reported_ms, row.mean_step_ms) == (None, None, 100)
    assert row.remark == NOT_ALL
    row = row_of("inspector", trained("inspector", 0, 100, records=(whole,)))
    assert (row.share_of_steps, row.remark) == (None, NOT_ALL), "rank 1 has none"
    row = row_of("inspector", trained("inspector", 0, 100))
    assert (row.share_of_steps, row.remark) == (None, ""), "where no NCCL call is made"


def test_a_kind_of_calls_that_is_missing_leaves_no_share() -> None:
    """What is there is alike in each step, but half of the calls that were made is not there."""
    records = on_both(recorded(*[10.0] * 12))
    half = trained("inspector", 0, 100, records=records)
    row = row_of("inspector", half, trained("empty", 0, 100, counted=(24, 24)))
    assert (row.share_of_steps, row.remark) == (None, NOT_ALL)
    row = row_of("inspector", half, trained("empty", 0, 100, counted=(14, 14)))
    assert row.share_of_steps is not None, "two are missing, as the start may have"


def test_a_call_without_a_time_leaves_no_share() -> None:
    records = on_both(recorded(*[10.0] * 11, -1))
    row = row_of("inspector", trained("inspector", 0, 100, records=records))
    assert (row.share_of_steps, row.remark) == (None, NO_TIMES)
    early = on_both(recorded(-1, *[10.0] * 11))
    row = row_of("inspector", trained("inspector", 0, 100, records=early))
    assert row.share_of_steps is not None, "warm-up is not in it"


def test_some_runs_without_a_share_are_counted() -> None:
    whole, part = recorded(*[10.0] * 12), recorded(*[10.0] * 7)
    row = row_of(
        "inspector",
        trained("inspector", 0, 100, records=on_both(whole)),
        trained("inspector", 1, 100, records=on_both(part)),
    )
    assert row.share_of_steps is not None
    assert row.share_of_steps.value == pytest.approx(0.1)
    assert row.remark == f"in 1 of 2 runs: {NOT_ALL}"


def test_a_sample_stands_for_the_calls_of_the_steps() -> None:
    """The estimate of all 12 calls is 360 ms: ten of them take 300 of 1000 ms."""
    sample = Records(
        0, "AllReduce", 1024, 12, (90 * MS,), timed=1, sampled=True, source="gpu-event",
        estimated_ns=360 * MS,
    )  # fmt: skip
    row = row_of("ncclscope-profile", trained("ncclscope-profile", 0, 100, records=on_both(sample)))
    assert row.share_of_steps is not None
    assert row.share_of_steps.value == pytest.approx(0.3)
    assert row.remark == SAMPLE
    plain = replace(sample, estimated_ns=-1)
    row = row_of("ncclscope-profile", trained("ncclscope-profile", 0, 100, records=on_both(plain)))
    assert row.share_of_steps is not None
    assert row.share_of_steps.value == pytest.approx(0.9), "the mean of those that were timed"


@pytest.mark.parametrize(
    ("profiler", "source", "remark", "share"),
    [
        ("example", "host", "the host's times; no share", None),
        ("comma", "enqueue", "until the call was queued; no share", None),
        ("ncclscope-trace", "gpu-early", "a lower bound", 0.1),
        ("flight-recorder", "gpu", "waiting in the stream included", 0.1),
        ("inspector", "gpu", "", 0.1),
    ],
)
def test_what_times_are_is_remarked(
    profiler: str, source: str, remark: str, share: float | None
) -> None:
    records = on_both(recorded(*[10.0] * 12, source=source))
    row = row_of(profiler, trained(profiler, 0, 100, records=records))
    assert row.remark.startswith(remark)
    assert bool(row.remark) == bool(remark)
    assert row.share_of_steps is None if share is None else row.share_of_steps is not None
    if row.share_of_steps is not None:
        assert row.share_of_steps.value == pytest.approx(share)
    notes = training_table("x", [row]).notes
    assert (f"{profiler}: {row.remark}" in notes) == bool(remark)


def test_a_window_of_steps_is_compared_with_the_same_steps_alone() -> None:
    """25 steps of 100 ms and 5 profiled ones of 150 ms: the profiler costs 50 %, not nothing."""
    plain, slow = 100 * MS, 150 * MS
    steps = ((plain,) * 25 + (slow,) * 5,) * 2
    records = on_both(recorded(*[75.0] * 5))
    window = trained("torch-profiler", 0, 0, step_ns=steps, records=records, window_steps=5)
    without = replace(trained("none", 0, 0), step_ns=((plain,) * 30,) * 2)
    counted = trained("empty", 0, 100, counted=(32, 32))
    row = row_of("torch-profiler", without, window, counted)
    assert row.step_ms == 150
    assert row.step_ratio is not None
    assert row.step_ratio.value == pytest.approx(1.5)
    assert row.share_of_steps is not None
    assert row.share_of_steps.value == pytest.approx(0.5), "of its window, not of all steps"
    assert row.remark.startswith("the last 5 steps alone")
    less = replace(window, records=on_both(recorded(*[75.0] * 4)))
    assert row_of("torch-profiler", without, less, counted).share_of_steps is None


# ---- what a run is compared with ----
def test_a_round_is_compared_with_the_mean_of_its_runs_without_a_plugin() -> None:
    """Round 0: 150 by the mean of 100 and 140; round 1 has one alone: 150 by 100."""
    trials = (
        trained("none", 0, 100, cpu_ns=(100, 100)),
        trained(AGAIN, 0, 140, cpu_ns=(140, 140)),
        trained("none", 1, 100, cpu_ns=(100, 100)),
        trained("empty", 0, 150, cpu_ns=(240, 240)),
        trained("empty", 1, 150, cpu_ns=(100, 100)),
    )
    again = replace(TABLE["none"], name=AGAIN)
    none, noise, empty = training_rows([TABLE["none"], again, TABLE["empty"]], trials, WARM_UP)
    assert none.step_ratio is None
    assert noise.step_ratio is not None
    assert noise.step_ratio.value == pytest.approx(1.4), "against the first alone"
    assert empty.step_ratio is not None
    assert (empty.step_ratio.low, empty.step_ratio.high) == pytest.approx((1.25, 1.5))
    assert empty.cpu_ratio is not None
    assert (empty.cpu_ratio.low, empty.cpu_ratio.high) == pytest.approx((1.0, 2.0))
    titles = [column.title for column in training_table("x", [none, noise, empty]).columns]
    assert "against none [range of 2 rounds]" in titles


def test_recorded_calls_and_functions_are_of_one_run() -> None:
    """Of 10, 6 and 8 calls the run with 8."""
    trials = [
        trained(
            "inspector", number, 100,
            records=(Records(0, "AllReduce", 8, count - 1), Records(0, "Broadcast", 8, 1)),
        )
        for number, count in enumerate((10, 6, 8))
    ]  # fmt: skip
    row = row_of("inspector", *trials)
    assert (row.calls_recorded, row.by_function) == (8, {"AllReduce": 7, "Broadcast": 1})
    assert function_table([row]).rows == (("inspector", "7", "1"),)


# ---- forms ----
def whole_run() -> TrainingRun:
    records = on_both(recorded(*[10.0] * 12))
    trials = (
        trained("none", 0, 100),
        trained("none", 1, 200),
        trained("empty", 0, 100, counted=(12, 12)),
        trained("inspector", 0, 110, records=records[:1]),
        trained("inspector", 1, 220, records=records[:1]),
        trained("flight-recorder", 0, 8, records=records),
        trained("example", 0, 0, failure="rank 0 was killed by SIGSEGV\nlast words"),
    )
    profilers: tuple[Profiler, ...] = tuple(
        TABLE[name] for name in dict.fromkeys(trial.profiler for trial in trials)
    )
    settings = settings_json(TrainingSettings("gpt", 2, 0, steps=STEPS, warm_up=WARM_UP))
    return TrainingRun(settings, profilers, {"comma": "absent"}, trials, 0.0)


def test_rows_of_a_run() -> None:
    none, empty, inspector, _, example = whole_run().rows
    assert none.step_ms == 150
    assert none.step_ratio is None
    assert inspector.step_ratio is not None
    assert inspector.step_ratio.value == pytest.approx(1.1)
    assert (inspector.calls_made, inspector.calls_recorded) == (24, 12)
    assert empty.calls_recorded is None
    assert (example.failed, example.remark) == (1, "rank 0 was killed by SIGSEGV")
    assert "50.0 %" in training_table("x", [inspector]).rows[0]
    assert [row[-2] for row in training_table("x", [none, empty, inspector]).rows] == list("212")


def test_text_names_backend_rounds_and_what_is_left_out() -> None:
    text = "\n".join(text_lines(whole_run(), 200))
    for part in (
        "backend gloo: no call of NCCL's is made",
        "; 1 to 2 rounds of each profiler, 10 steps in each",
        "left out: comma: absent",
        "flight-recorder: waiting in the stream included",
        "it may exceed 100 %",
        "what cannot be compared",
    ):
        assert part in text, part


def test_a_saved_run_is_read_as_it_was(tmp_path: Path) -> None:
    run, path = whole_run(), tmp_path / "saved.json"
    path.write_text(json.dumps(as_json(run)))
    assert read_run(path).trials == run.trials
    older = as_json(run)
    for trial in older["trials"]:
        trial["recorded_ns"] = [1, 1]
        del trial["window_steps"]
    path.write_text(json.dumps(older))
    assert read_run(path).trials == run.trials


def test_csv_has_a_line_for_each_number_with_its_range(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, table = tmp_path / "run.json", tmp_path / "run.csv"
    saved.write_text(json.dumps(as_json(whole_run())))
    assert main(["bench", "--from", str(saved), "--csv", str(table)]) == 0
    capsys.readouterr()
    assert table.read_text() == as_csv(whole_run())
    lines = list(csv.DictReader(io.StringIO(table.read_text())))
    numbers = {(line["profiler"], line["quantity"]): line for line in lines}
    assert numbers["inspector", "calls_recorded"]["value"] == "12"
    ratio = numbers["inspector", "step_ratio"]
    assert [float(ratio[name]) for name in ("value", "low", "high")] == pytest.approx([1.1] * 3)
    assert ("inspector", "share_of_steps") not in numbers, "its calls are missing on rank 1"


def test_the_page_draws_communication_beyond_the_step() -> None:
    """Of steps of 8 ms 10 ms are reported: the bar ends behind the line of the step."""
    text = as_html(whole_run())
    assert "Figure 4" in text
    assert "inspector: 50.0 % of calls" in text
    assert "flight-recorder: 10.00 of 8.00 ms a step" in text
    drawing = text.split('text-anchor="end">flight-recorder</text>')[1]
    bar = re.search(r'<rect class="c1" x="(\d+)"[^>]*width="([\d.]+)"', drawing)
    line = re.search(r'<line class="median" x1="([\d.]+)"', drawing)
    assert bar
    assert line
    left, width, end = int(bar[1]), float(bar[2]), float(line[1])
    assert width / (end - left) == pytest.approx(10 / 8, rel=0.01)


# ---- FSDP2 ----
@pytest.mark.parametrize("name", ["torch.distributed.fsdp", "torch.distributed._composable.fsdp"])
def test_fsdp2_is_found_where_each_release_of_pytorch_has_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2.4 and 2.5 have it in another module, and a module of the later ones' name without it."""
    for other in ("torch.distributed.fsdp", "torch.distributed._composable.fsdp"):
        module = SimpleNamespace(fully_shard=len) if other == name else SimpleNamespace()
        monkeypatch.setitem(sys.modules, other, module)
    assert find_fully_shard() is len
    monkeypatch.setitem(sys.modules, name, SimpleNamespace())
    with pytest.raises(NcclscopeError, match="cannot train gpt"):
        find_fully_shard()
