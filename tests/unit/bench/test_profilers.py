"""The comparison of profilers: which are chosen, what counts as recorded, and all numbers."""

import csv
import io
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from ncclscope.bench.profilers.comparison import (
    ProfilerComparison,
    TimesRow,
    compare,
    forms_of,
    recorded_calls,
)
from ncclscope.bench.profilers.comparison_files import (
    ComparisonRun,
    as_csv,
    as_json,
    machine_of,
    read_run,
)
from ncclscope.bench.profilers.comparison_page import as_html
from ncclscope.bench.profilers.comparison_tables import (
    cost_table,
    loss_table,
    share_text,
    text_lines,
)
from ncclscope.bench.profilers.cost import CostRow
from ncclscope.bench.profilers.intervals import label_of
from ncclscope.bench.profilers.profiler_table import known_profilers
from ncclscope.bench.profilers.recording import Records, read_recording
from ncclscope.bench.profilers.selection import AGAIN, select_profilers
from ncclscope.bench.profilers.trials import COST, KILL, TIMES, ProfilerTrial, order_of_trials
from ncclscope.bench.results import BenchDevice, Session
from ncclscope.errors import UsageError
from ncclscope.ingest import example_profiler
from ncclscope.ingest.records import ImportReport, Operation
from ncclscope.native import empty_plugin_path
from tests.support.foreign_samples import NCCLSEE, ncclsee_trace
from tests.support.known_profilers import made_case, made_records, made_trial

MADE = 13  # calls of a case on each rank
MACHINE = {
    "ncclscope": "1", "nccl": "2.28.9", "cuda": 0, "ranks": 2, "hosts": 1, "gpus": ["none"],
    "simulated": True,
}  # fmt: skip


def made_run(*trials: ProfilerTrial) -> ComparisonRun:
    table = known_profilers()
    names = dict.fromkeys(["none", *(trial.profiler for trial in trials)])
    return ComparisonRun(
        MACHINE,
        {"rounds": 1},
        tuple(table[name] for name in names),
        {"comma": "absent"},
        trials,
        0.0,
    )


# ---- choosing ----
def test_a_profiler_is_named_with_its_plugin_and_variables() -> None:
    plugin = empty_plugin_path()
    words = [f"inspector={plugin},A=1,B=x=y", f"inspector={plugin}", "ncclscope"]
    none, again, first, second, own = select_profilers(words, {}).profilers
    assert [none.name, again.name, own.name] == ["none", AGAIN, "ncclscope-trace"]
    assert (first.variables["A"], first.variables["B"]) == ("1", "x=y")
    assert first.variables["NCCL_PROFILER_PLUGIN"] == str(plugin)
    assert (first.name, second.name) == ("inspector", "inspector 2")
    assert "A" not in second.variables


def test_what_is_not_installed_is_named_and_left_out(tmp_path: Path) -> None:
    selection = select_profilers([], {"PATH": str(tmp_path)})
    names = [profiler.name for profiler in selection.profilers]
    assert names[:2] == ["none", AGAIN]
    assert {"empty", "ncclscope-profile", "ncclscope-trace", "ncclscope-full"} <= set(names)
    assert set(selection.absent) == {"inspector", "example", "ncclsee", "comma", "nsys"}
    only_torch = select_profilers(["flight-recorder"], os.environ)
    assert "--train" in only_torch.absent["flight-recorder"]


def test_a_plugin_that_cannot_be_loaded_is_no_plugin_that_records_nothing(tmp_path: Path) -> None:
    plugin = tmp_path / "x.so"
    plugin.write_text("no library")
    selection = select_profilers([f"inspector={plugin}"], os.environ)
    assert [profiler.name for profiler in selection.profilers] == ["none", AGAIN]
    assert selection.absent["inspector"].startswith("cannot be loaded: ")


def test_what_a_kill_takes_is_shown_without_other_runs() -> None:
    trial = made_trial("inspector", KILL, records=made_records([1000] * 5))
    (row,) = loss_table(compare([trial], (known_profilers()["inspector"],))).rows
    assert row[3:6] == ("26", "10", "16 (61.5 %)")


@pytest.mark.parametrize("word", ["nobody", "inspector=/no/such.so", "empty,=1", "empty,A", ""])
def test_what_is_no_profiler(word: str) -> None:
    with pytest.raises(UsageError):
        select_profilers([word], {})


def test_every_mode_and_timing_of_ncclscope_is_known() -> None:
    names = [name for name in known_profilers() if name.startswith("ncclscope-")]
    assert len(names) == 3 * 4
    for name, profiler in known_profilers().items():
        assert profiler.limits or name in ("none",), f"{name} says what cannot be compared"


def test_every_profiler_runs_once_a_round_in_an_order_that_changes() -> None:
    profilers = list(known_profilers().values())[:6]
    order = [
        (kind, number, own.name) for kind, number, own in order_of_trials(profilers, 3, (COST,))
    ]
    rounds = [[name for _, number, name in order if number == wanted] for wanted in range(3)]
    assert all(sorted(names) == sorted(own.name for own in profilers) for names in rounds)
    assert rounds[0] != rounds[1]


# ---- coverage ----
def test_calls_recorded_are_counted_by_rank() -> None:
    first, second = made_records([1000] * MADE)
    trial = made_trial("inspector", COST, records=(first, replace(second, count=9)))
    assert [(rank, recorded) for _, rank, recorded in recorded_calls(trial)] == [(0, MADE), (1, 9)]


def test_an_alltoall_may_be_on_record_as_sends_and_receives() -> None:
    case = made_case(operation="alltoall", function="AlltoAll")
    assert len(forms_of(case)) == 2
    parts = tuple(Records(0, name, 512, 2 * MADE) for name in ("Send", "Recv"))
    whole = (Records(0, "AlltoAll", 1024, MADE),)
    for records, expected in ((parts, MADE), (whole, MADE), (parts[:1], MADE / 2), ((), 0)):
        trial = made_trial("comma", COST, cases=(case,), records=records)
        assert next(recorded_calls(trial))[2] == expected


def test_a_record_counts_for_one_case_only() -> None:
    small = made_case(operation="sendrecv", function="SendRecv", size_bytes=512)
    large = made_case(operation="alltoall", function="AlltoAll")
    parts = tuple(Records(0, name, 512, MADE) for name in ("Send", "Recv"))
    trial = made_trial("comma", COST, cases=(small, large), records=parts)
    assert [recorded for _, rank, recorded in recorded_calls(trial) if rank == 0] == [MADE, 0]


def test_more_records_than_calls_are_no_more_than_all() -> None:
    trial = made_trial("inspector", COST, records=made_records([1000] * 40))
    assert [recorded for _, _, recorded in recorded_calls(trial)] == [MADE, MADE]


def test_records_of_ranges_of_sizes_count_for_the_function() -> None:
    records = (Records(0, "AllReduce", 1000, 5), Records(0, "Broadcast", 1000, 5))
    trial = made_trial("ncclsee", COST, records=records)
    assert next(recorded_calls(trial))[2] == 5


@pytest.mark.parametrize(
    ("share", "text"), [(1, "100 %"), (0, "0 %"), (0.99999, "99.9 %"), (1e-6, "0.1 %"), (None, "–")]
)
def test_a_share_is_100_or_0_percent_of_whole_numbers_only(share: float | None, text: str) -> None:
    assert share_text(share) == text


# ---- times ----
def times_of(*trials: ProfilerTrial) -> tuple[TimesRow, ...]:
    table = known_profilers()
    return compare(trials, [table[trial.profiler] for trial in trials]).times


def test_times_are_compared_call_by_call() -> None:
    """Warm-up calls that take very long are no part of it; the third call is missing."""
    own = [10**9, 10**9, *(900 + call for call in range(10)), 10**9]
    kept = [place for place in range(MADE) if place != 4]
    records = made_records([own[place] for place in kept], kept)
    (row,) = times_of(made_trial("inspector", TIMES, records=records))
    assert row.calls == 2 * 9
    assert row.ratio is not None
    assert row.ratio.value == pytest.approx(905 / 1005)
    assert row.ratio.low <= row.ratio.value <= row.ratio.high < 1
    assert row.remark == ""


def test_records_without_numbers_are_matched_when_all_are_there() -> None:
    own = [7, 7, *(2 * (1000 + call) for call in range(10)), 7]
    (row,) = times_of(made_trial("nsys", TIMES, records=made_records(own)))
    assert row.ratio is not None
    assert (row.ratio.value, row.ratio.low, row.ratio.high) == (2, 2, 2)
    (row,) = times_of(made_trial("nsys", TIMES, records=made_records(own[:8])))
    assert row.remark == "cannot be matched with calls"


def test_a_sample_says_that_it_is_one() -> None:
    records = tuple(replace(own, sampled=True, count=MADE) for own in made_records([1000, 1009]))
    (row,) = times_of(made_trial("ncclscope-profile", TIMES, records=records))
    assert row.calls == 4
    assert row.remark.startswith("a sample")


def test_what_was_not_recorded_has_no_times() -> None:
    case = made_case(operation="alltoall", function="AlltoAll")
    other = made_records([1000], function="Broadcast")
    sends = (Records(0, "Send", 512, 1, (1,)),)
    rows = times_of(
        *(made_trial("comma", TIMES, cases=(case,), records=own) for own in (other, sends))
    )
    assert [row.remark for row in rows] == ["not recorded", "sends and receives instead"]
    assert all(row.ratio is None for row in rows)


# ---- cost ----
def test_five_microseconds_in_two_callbacks_cost_ten() -> None:
    trials = []
    for number, wall_us in enumerate((100.0, 200.0, 150.0)):
        trials.append(made_trial("none", COST, number, cases=(made_case(wall_us, 50),)))
        trials.append(made_trial("inspector", COST, number, cases=(made_case(wall_us + 10, 75),)))
    table = known_profilers()
    row, mean = compare(trials, (table["none"], table["inspector"])).cost
    assert (row.operation, mean.operation) == ("allreduce", "")
    assert row.added_us.value == row.added_us.low == row.added_us.high == pytest.approx(10)
    assert row.wall_ratio.value == pytest.approx(160 / 150)
    assert (row.wall_ratio.low, row.wall_ratio.high) == pytest.approx((210 / 200, 110 / 100))
    assert row.cpu_ratio.value == pytest.approx(1.5)
    assert row.added_cpu_us.value == pytest.approx(25)
    assert mean.wall_ratio.value == pytest.approx(160 / 150)


def test_what_a_profiler_adds_has_its_interval() -> None:
    trials = []
    for number, added_us in enumerate((4.0, 6.0, 5.0)):
        trials.append(made_trial("none", COST, number, cases=(made_case(100),)))
        trials.append(made_trial("inspector", COST, number, cases=(made_case(100 + added_us),)))
    table = known_profilers()
    several = compare(trials, (table["none"], table["inspector"]))
    assert cost_table(several, every_case=True).rows[0][5] == "+5.00 [+4.00, +6.00]"
    once = compare(trials[:2], (table["none"], table["inspector"]))
    assert cost_table(once, every_case=True).rows[0][5] == "+4.00", "a single round has none"


def costs_of(
    walls_us: list[float], without_us: list[float], again_us: list[float]
) -> dict[str, CostRow]:
    """The mean rows of no plugin measured again and of Inspector."""
    trials = [
        made_trial(name, COST, number, cases=(made_case(wall_us),))
        for name, walls in (("none", without_us), (AGAIN, again_us), ("inspector", walls_us))
        for number, wall_us in enumerate(walls)
    ]
    table = known_profilers()
    again = replace(table["none"], name=AGAIN)
    cost = compare(trials, (table["none"], again, table["inspector"])).cost
    return {row.profiler: row for row in cost if not row.operation}


def test_a_round_is_compared_with_the_mean_of_its_runs_without_a_plugin() -> None:
    """The first round has two, 100 and 140 µs; the second one alone."""
    rows = costs_of([150, 150], [100, 100], [140])
    row = rows["inspector"]
    assert (row.wall_ratio.low, row.wall_ratio.high) == pytest.approx((150 / 120, 150 / 100))
    assert (row.added_us.low, row.added_us.high) == pytest.approx((30, 50))
    assert rows[AGAIN].wall_ratio.value == pytest.approx(1.4), "the noise: against the first alone"


def test_a_few_rounds_have_a_range_and_six_an_interval() -> None:
    """By resampling 5 rounds 1 of 17 draws has the lowest as its median, of 6 rounds 1 of 115."""
    walls: list[float] = [101, 150, 102, 103, 90]
    few = costs_of(walls, [100] * 5, [])["inspector"]
    assert few.rounds == 5
    assert (few.wall_ratio.low, few.wall_ratio.high) == pytest.approx((0.9, 1.5))
    more = costs_of([*walls, 102.5], [100] * 6, [])["inspector"]
    assert more.wall_ratio.low > 0.9
    assert more.wall_ratio.high < 1.5
    for row, label in ((few, "[range of 5 rounds]"), (more, "[95 %]")):
        comparison = ProfilerComparison((), (), (), (row,), ())
        titles = [column.title for column in cost_table(comparison, every_case=False).columns]
        assert f"wall against none {label}" in titles


@pytest.mark.parametrize(
    ("rounds", "label"),
    [
        ([1, 1], ""),
        ([1, 3], "range of 3 rounds"),
        ([2, 5, 3], "range of 2 to 5 rounds"),
        ([6, 10], "95 %"),
        ([5, 6], "95 %, range below 6 rounds"),
    ],
)
def test_what_brackets_hold(rounds: list[int], label: str) -> None:
    assert label_of(rounds) == label


def test_a_round_that_failed_without_a_plugin_is_left_out() -> None:
    trials = [
        made_trial("none", COST, 0),
        made_trial("none", COST, 1, failure="a rank died"),
        made_trial("empty", COST, 0, cases=(made_case(110),)),
        made_trial("empty", COST, 1, cases=(made_case(500),)),
    ]
    table = known_profilers()
    row, _ = compare(trials, (table["none"], table["empty"])).cost
    assert row.wall_ratio.high == pytest.approx(1.1)


# ---- loss ----
def test_what_a_kill_takes_and_which_runs_failed() -> None:
    everything, half = made_records([1000] * MADE), made_records([1000] * 5)
    trials = [
        made_trial("inspector", COST, records=everything, bytes_written=2600, files=2),
        made_trial("inspector", COST, 1, failure="rank 0 was killed by SIGSEGV"),
        made_trial("inspector", KILL, records=half),
    ]
    comparison = compare(trials, (known_profilers()["inspector"],))
    (row,) = comparison.loss
    assert row.bytes_per_call == 100
    assert (row.killed_made, row.killed_recorded) == (2 * MADE, 10)
    assert (row.failed, row.runs, row.failures) == (1, 3, ("rank 0 was killed by SIGSEGV",))
    assert comparison.coverage_of("inspector") == (2 * MADE, 2 * MADE), "of runs that ended"


# ---- forms ----
def whole_run() -> ComparisonRun:
    records = made_records([900] * 9, list(range(9)))
    return made_run(
        made_trial("none", COST),
        made_trial("inspector", COST, records=records, cases=(made_case(120),), bytes_written=900),
        made_trial("inspector", TIMES, records=records),
        made_trial("inspector", KILL, records=records),
        made_trial("example", COST, failure="rank 1 was killed by SIGSEGV"),
    )


def test_a_heading_says_the_rounds_that_were_run_and_the_hosts_that_ranks_pose_as() -> None:
    """What was asked for, 1 round, is not what was run."""
    trials = [made_trial("none", COST, number) for number in range(3)]
    assert "; 3 rounds, each profiler" in made_run(*trials).heading[-1]
    trials.append(made_trial("empty", COST))
    run = made_run(*trials)
    assert "2 ranks on 1 host: none; 1 to 3 rounds of each profiler" in run.heading[-1]
    devices = tuple(
        BenchDevice(rank, "node", rank, 0, "H200", "", "kernel", 0, 0, f"posed-{rank}")
        for rank in range(2)
    )
    posing = replace(run, machine=machine_of(Session(devices, 22809, 0, "")))
    assert "2 ranks on 1 host, posing as 2: H200; " in posing.heading[-1]
    alike = tuple(replace(own, posed_host="") for own in devices)
    alone = replace(run, machine=machine_of(Session(alike, 22809, 0, "")))
    assert "2 ranks on 1 host: H200; " in alone.heading[-1]


def test_all_tables_are_in_the_text() -> None:
    run = whole_run()
    text = "\n".join(text_lines(run.comparison, run.heading, dict(run.absent), 200))
    assert "SIMULATION" in text.splitlines()[0]
    for part in (
        "left out: comma: absent",
        "69.2 %",  # 9 of 13 calls
        "no run came to its end",
        "+20.0 %  ",  # a single round has no interval
        "8 (30.8 %)",  # lost by SIGKILL
        "rank 1 was killed by SIGSEGV",
        "what cannot be compared",
    ):
        assert part in text, part


def test_a_saved_comparison_is_read_as_it_was(tmp_path: Path) -> None:
    run, path = whole_run(), tmp_path / "saved.json"
    path.write_text(json.dumps(as_json(run)))
    again = read_run(path)
    assert again.trials == run.trials
    assert json.dumps(as_json(again)) == path.read_text()
    path.write_text('{"form": "other"}')
    with pytest.raises(UsageError, match="another form"):
        read_run(path)


def test_csv_has_a_row_for_each_number_with_its_interval() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(whole_run()))))
    (ratio,) = [
        row
        for row in rows
        if (row["table"], row["profiler"], row["quantity"]) == ("cost", "inspector", "wall_ratio")
        and row["operation"]
    ]
    assert (ratio["value"], ratio["low"], ratio["high"]) == ("1.2", "1.2", "1.2")
    assert {row["table"] for row in rows} == {"coverage", "times", "cost", "loss"}
    assert {row["simulated"] for row in rows} == {"true"}


def test_the_page_has_three_figures_and_needs_nothing_else() -> None:
    text = as_html(whole_run())
    for part in ("Figure 1", "Figure 2", "Figure 3", "the benchmark", "SIMULATION", "69.2 %"):
        assert part in text, part
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "<script" not in text


# ---- other profilers' files ----
def test_traces_of_the_example_profiler(tmp_path: Path) -> None:
    begin = (
        '{"name": "AllReduce", "cat": "COLL", "ph": "b", "id": %d, "pid": 7, "tid": 1, "ts": 10.5, '
        '"args": {"SeqNum": %d, "CommHash": 9, "Rank": 1, "Count": 256, "Datatype": "ncclFloat32", '
        '"Algorithm": "RING", "Protocol": "LL", "nChannels": 2}},\n'
    )
    end = '{"name": "AllReduce", "cat": "COLL", "ph": "e", "id": 0, "pid": 7, "tid": 1, "ts": 32.0},\n'
    api = '{"name": "AllReduce", "cat": "COLL_API", "ph": "b", "id": 0, "args": {"datatype": x}},\n'
    path = tmp_path / "trace_1_1.json"
    path.write_text(
        "[\n" + api + begin % (0, 0) + end + begin % (1, 1) + '{"cat": "COLL", broken\n'
    )
    report = ImportReport()
    done, running = list(example_profiler.read(path, report))
    assert isinstance(done, Operation)
    assert isinstance(running, Operation)
    assert (done.values["duration_ns"], done.values["size_bytes"]) == (21500, 1024)
    assert (done.values["rank"], done.values["sequence"], done.process.pid) == (1, 0, 7)
    assert "duration_ns" not in running.values
    assert sum(report.lost.values()) == 1


def test_single_calls_are_read_where_ncclsee_wrote_totals_as_well(tmp_path: Path) -> None:
    (tmp_path / "70.csv").write_text(NCCLSEE)
    (tmp_path / "trace.json").write_text(json.dumps(ncclsee_trace(0)))
    recording = read_recording(known_profilers()["ncclsee"], tmp_path, ())
    assert [(own.function, own.count, own.size_bytes) for own in recording.records] == [
        ("AllReduce", 5, 4096)
    ]
    (tmp_path / "trace.json").unlink()
    recording = read_recording(known_profilers()["ncclsee"], tmp_path, ())
    assert sum(own.count for own in recording.records) == 9
    (tmp_path / "70.csv").unlink()
    assert read_recording(known_profilers()["ncclsee"], tmp_path, ()).records == ()
