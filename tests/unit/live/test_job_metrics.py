"""Metrics as text, within a limit, and the rates among them."""

import os
import time
from pathlib import Path

import pytest
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families

from ncclscope.capture import layout
from ncclscope.live.exposition import exposition, wants_openmetrics
from ncclscope.live.job_follower import FollowedJob
from ncclscope.live.job_metrics import add_training, helper_cpu_seconds, repetitions
from ncclscope.live.metrics import (
    BY_NAME,
    DURATION_BOUNDS_NS,
    INSPECTOR_METRICS,
    METRICS,
    OTHER,
    OWN_METRICS,
    SIZE_NAMES,
    SYSTEM_METRICS,
    size_class,
)
from ncclscope.live.metrics_cache import name_runs
from ncclscope.live.series import Histogram, Samples, SeriesLimit, with_run
from ncclscope.snapshot.process import read_snapshot
from tests.support.writer.files import ProcessFolder
from tests.support.writer.live import live_slots
from tests.support.writer.slots import pack
from tests.support.writer.training import PlantedCall, Program

HOSTILE = 'a"b\\c\nd<script>\x1b[31m\x00' + "x" * 10_000


def _one_of_each(value: str) -> Samples:
    samples = Samples()
    for metric in METRICS:
        labels = tuple(value for _ in metric.labels)
        if metric.kind == "histogram":
            bounds = tuple(range(1, len(DURATION_BOUNDS_NS) + 1))
            samples.add(metric.name, labels, Histogram(bounds, 20, 1.5))
        else:
            samples.add(metric.name, labels, 1.0)
    return samples


def _series(samples: Samples) -> list:
    return [(m, with_run(labels, "run 7", "h"), value) for m, labels, value in samples.in_order()]


@pytest.mark.parametrize("value", ["plain", HOSTILE])
def test_both_formats_parse_and_say_the_same(value: str) -> None:
    series = _series(_one_of_each(value))
    text = list(text_string_to_metric_families(exposition(series)))
    openmetrics = list(
        openmetrics_parser.text_string_to_metric_families(exposition(series, openmetrics=True))
    )
    assert len(text) == len(openmetrics) == len(METRICS)
    for families in (text, openmetrics):
        for family in families:
            for sample in family.samples:
                assert sample.labels["run"] == "run 7"
                for given in set(sample.labels) - {"run", "host", "le"}:
                    assert sample.labels[given].startswith(value[:5])
                    assert len(sample.labels[given]) <= 200
                    assert "\x1b" not in sample.labels[given]


def test_every_metric_has_a_name_of_its_own() -> None:
    names = [
        metric.name for metric in (*METRICS, *INSPECTOR_METRICS, *SYSTEM_METRICS, *OWN_METRICS)
    ]
    assert len(names) == len(set(names)) == len(BY_NAME)


def test_histogram_lines_are_cumulative_and_end_with_all() -> None:
    samples = Samples()
    bounds = tuple(range(1, len(DURATION_BOUNDS_NS) + 1))
    samples.add("operation_seconds", ("AllReduce", "1M"), Histogram(bounds, 99, 2.5))
    samples.add("operation_seconds", ("AllReduce", "1M"), Histogram(bounds, 1, 0.5))
    (family,) = text_string_to_metric_families(exposition(_series(samples)))
    buckets = {s.labels["le"]: s.value for s in family.samples if s.name.endswith("_bucket")}
    assert buckets.pop("+Inf") == 100
    assert list(buckets.values()) == [2.0 * bound for bound in bounds]
    assert [s.value for s in family.samples if s.name.endswith("_sum")] == [3.0]


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain;version=0.0.4;q=0.9,*/*;q=0.1", False),
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;"
            "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            True,
        ),
        ("application/openmetrics-text;q=0.1,text/plain", False),
        ("application/openmetrics-text;q=nonsense", False),
    ],
)
def test_accept_header(accept: str, openmetrics: bool) -> None:
    assert wants_openmetrics(accept) is openmetrics


def test_size_classes_are_eight() -> None:
    assert len(SIZE_NAMES) == 8
    assert [size_class(size) for size in (0, 4096, 4097, 1 << 20, 1 << 30, (1 << 30) + 1)] == [
        "4K", "4K", "64K", "1M", "1G", "more",
    ]  # fmt: skip


def _many(communicators: int, sizes: int) -> Samples:
    samples = _one_of_each("x")
    for number in range(communicators):
        samples.add("communicator_gpu_seconds", (f"comm{number}", "0", "intra"), 2.0)
        samples.add("communicator", (f"comm{number}", "8", "1", "no"), 1.0)
    for number in range(sizes):
        samples.add("operation_seconds", (f"F{number}", "1M"), Histogram((0,) * 11, 3, 1.0))
    return samples


def _count(samples: Samples) -> int:
    return sum(metric.series for metric, _, _ in samples.in_order())


def test_a_budget_holds_with_ten_thousand_communicators_and_sizes() -> None:
    kept = SeriesLimit(500).fold(_many(10_000, 10_000))
    assert _count(kept) <= 500
    sums = kept.values["communicator_gpu_seconds"]
    assert any(labels[0] == OTHER for labels in sums)
    values = [value for value in sums.values() if isinstance(value, float)]
    assert len(values) == len(sums)
    assert sum(values) == 20_001.0, "nothing is lost, only its name"
    histogram = kept.values["operation_seconds"][OTHER, OTHER]
    assert isinstance(histogram, Histogram)
    assert histogram.count > 20_000
    assert kept.values["folded_series"][()] > 19_000


def test_series_keep_their_place_and_make_room_when_they_go() -> None:
    limit = SeriesLimit(500)
    first = limit.fold(_many(1_000, 0))
    again = limit.fold(_many(1_001, 0))
    assert set(first.values["communicator_gpu_seconds"]) == set(
        again.values["communicator_gpu_seconds"]
    )
    later = _many(2, 0)
    later.add("communicator_gpu_seconds", ("new", "0", "intra"), 1.0)
    fewer = limit.fold(later).values["communicator_gpu_seconds"]
    assert {(name, "0", "intra") for name in ("comm0", "comm1", "new")} <= set(fewer)


def test_a_folded_series_never_returns_while_it_exists() -> None:
    limit = SeriesLimit(500)
    limit.fold(_many(1_000, 0))
    many = _many(1_000, 0)
    for number in range(900):  # all that had a place of their own, and more
        del many.values["communicator_gpu_seconds"][f"comm{number}", "0", "intra"]
    kept = limit.fold(many)
    last = ("comm999", "0", "intra")
    assert last not in kept.values["communicator_gpu_seconds"]


@pytest.mark.parametrize(
    ("counts", "steps"),
    [
        ([100, 100, 100, 200, 4000], 100),
        ([100, 101, 100, 99, 300], 100),  # caught in the middle of a step
        ([5000], None),
        ([2, 2, 2], None),
        ([17, 23, 91, 8], None),
        ([], None),
    ],
)
def test_steps_are_what_repeats(counts: list[int], steps: int | None) -> None:
    assert repetitions(counts) == steps


def test_a_jobs_name_stays_while_it_lives() -> None:
    """A requeued job has the number of the one before it, which is shown for a minute more."""
    old, new = (FollowedJob(Path(f"/scratch/77-{n}"), "a", "77") for n in (0, 1))
    alone = name_runs({}, [old])
    assert alone == {old.capture: "77"}
    both = name_runs(alone, [old, new])
    assert both == {old.capture: "77", new.capture: "/scratch/77-1"}
    assert name_runs(both, [new]) == {new.capture: "/scratch/77-1"}
    assert name_runs({}, [new]) == {new.capture: "77"}


def test_cpu_time_is_of_the_right_process(tmp_path: Path) -> None:
    """Numbers of processes repeat on other hosts and in other containers."""
    task = tmp_path / "7" / "task" / "9"
    task.mkdir(parents=True)
    rest = " ".join(["S", *["0"] * 10, "150", "50", *["0"] * 6, "777"])
    (tmp_path / "7" / "stat").write_text(f"7 (python) {rest}")
    (task / "stat").write_text(f"9 (ncclscope) {rest}")
    (task / "comm").write_text("ncclscope\n")
    assert helper_cpu_seconds(7, "777", tmp_path) == 200 / os.sysconf("SC_CLK_TCK")
    assert helper_cpu_seconds(7, "778", tmp_path) is None
    assert helper_cpu_seconds(8, "777", tmp_path) is None


def test_training_steps_come_from_the_live_page(tmp_path: Path) -> None:
    program = Program(3, 4)
    program.call("AllReduce", 64, PlantedCall(None, None, None))
    program.write(tmp_path)
    step = {
        "kind": layout.KINDS["LiveStep"], "steps": 812, "last_ns": 250_000_000,
        "data_ns": 4_000_000_000, "tokens": 812 * 4096, "phase": layout.PHASE_BACKWARD,
    }  # fmt: skip
    page = live_slots(program.now_ns, program.now_ns + program.who.realtime_offset_ns, [step])
    ProcessFolder(tmp_path / "other", program.who).write("live", layout.FILE_LIVE, pack(page))
    folder = tmp_path / program.who.folder
    (tmp_path / "other" / program.who.folder / "live").rename(folder / "live")
    snapshot = read_snapshot(folder, time.time_ns())
    assert snapshot.training == "step 812, backward"
    samples = Samples()
    add_training(samples, snapshot)
    assert {name: dict(of_ranks) for name, of_ranks in samples.values.items()} == {
        "training_steps": {("3",): 812.0},
        "training_step_seconds": {("3",): 0.25},
        "training_tokens": {("3",): 812.0 * 4096},
        "data_wait_seconds": {("3",): 4.0},
    }
