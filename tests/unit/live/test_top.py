"""`ncclscope top`: what is shown of rates and ranks, and the screen's text."""

import argparse
import asyncio
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ncclscope.capture import layout
from ncclscope.cli import top
from ncclscope.diagnose.hang.verdict import NEVER_CALLED, Verdict
from ncclscope.errors import NcclscopeError
from ncclscope.live import top_tables
from ncclscope.live.counter_reader import CounterSums, OperationClass, Reading
from ncclscope.live.job_follower import FollowedJob, FollowedProcess, JobFollower, follow_process
from ncclscope.live.job_metrics import PreviousReading, job_samples
from ncclscope.live.recent_operations import RecentOperation
from ncclscope.live.top_model import RateHistory, Rates, TopData, TopRank, top_data
from ncclscope.live.top_screen import Top
from ncclscope.snapshot.process import ProcessSnapshot
from ncclscope.snapshot.types import OperationInFlight, RankState
from tests.support.player import ncclscope as command
from tests.support.top_screen import screen_text
from tests.support.waiting import PATIENCE_S

SECOND = 1_000_000_000
HOSTILE = "tp[bold]\x1b[31m<b>" + "x" * 40


def op_class(function: str = "AllReduce") -> OperationClass:
    return OperationClass(layout.LEVEL_WORK, 0, function, "intra", "1M", 4, 1.5)


def sums(operations: float, gpu_ms: float) -> CounterSums:
    size = operations * 1e6
    return CounterSums(operations, size, operations, gpu_ms * 1e6, size, 1.5 * size)


def process(
    rank: int,
    at_s: float,
    counted: CounterSums,
    life: str = "alive",
    name: str = "world",
    age_ms: int = 5,
) -> FollowedProcess:
    operation = OperationInFlight(
        8, "AllReduce", "float32", "RING", 1 << 18, None, 2, 1, 0, False, age_ms * 10**6
    )
    rank_state = RankState(
        0, 7, name, 5, rank, 4, "", True, 0, False, 10, 10, 10, None, 4, (operation,), None, rank
    )
    snapshot = ProcessSnapshot(
        f"p{rank}", "node1", 100 + rank, str(rank), rank, 4, 0, "trace", 22809, int(at_s * SECOND),
        life, "", 3 if rank == 1 else 0, 0, (rank_state,), Path(f"p{rank}"), {},
    )  # fmt: skip
    made = follow_process(Path(f"p{rank}"))
    made.snapshot, made.reading = snapshot, Reading({op_class(): counted}, {}, {}, {}, {})
    return made


def job(at_s: float, counted: list[CounterSums], **other: str) -> FollowedJob:
    name = other.get("name", "world")
    found = FollowedJob(Path("/c"), "node1", "job7", read_ns=int((at_s + 0.4) * SECOND))
    for rank, one in enumerate(counted):
        life = "dead" if other.get("dead") == str(rank) else "alive"
        made = process(rank, at_s, one, life, name)
        found.processes[made.folder.name] = made
        found.names[made.folder.name, 0] = name
    return found


def seen(*moments: FollowedJob) -> TopData:
    past, now = RateHistory(), TopData((), ())
    for moment in moments:
        now = top_data([moment], past)
    return now


def test_two_jobs_are_distinguished() -> None:
    """On the screen by their names before the communicator's, as text in a table each."""
    one, other = job(100, [sums(10, 5)] * 4), job(100, [sums(10, 5)] * 2)
    other.capture, other.run = Path("/d"), "job8"
    now = top_data([one, other], RateHistory())
    assert [row.label for row in now.communicators] == ["job7/world", "job8/world"]
    text = top_tables.screen_lines(now)
    first, second = text.index("job7:"), text.index("job8:")
    assert first < second
    assert text[first + 2].split()[:2] == ["world", "4"]
    assert text[second + 2].split()[:2] == ["world", "2/4"]
    assert [row.label for row in seen(one).communicators] == ["world"]
    assert "job7:" not in top_tables.screen_lines(seen(one))
    other.run = "job7"
    assert "/d:" in top_tables.screen_lines(top_data([one, other], RateHistory()))


# ---- numbers ----
def test_rates_are_between_heartbeats() -> None:
    now = seen(job(100, [sums(10, 5)] * 4), job(102, [sums(30, 25)] * 4))
    (row,) = now.communicators
    assert row.operations_per_s == 10  # of one rank: it is one operation
    assert row.rates.algbw_gb_s == pytest.approx(20e6 / 20e6)  # 20 MB in 20 ms
    assert row.rates.busbw_gb_s == pytest.approx(1.5)
    assert row.rates.gpu_share == pytest.approx(0.01)
    assert (row.late, row.wait_share) == (None, 0)


def test_before_the_second_heartbeat_nothing_is_claimed() -> None:
    same = job(100, [sums(10, 5)] * 4)
    (row,) = seen(same, same).communicators
    assert row.operations_per_s is None
    assert row.rates.busbw_gb_s is None
    assert row.wait_share is None


def test_samples_that_are_too_few_claim_nothing() -> None:
    """Times of all operations are estimates there, which may even shrink."""

    def sampled(gpu_ms: float, error_ms: float) -> CounterSums:
        return replace(sums(100, 0), other_gpu_ns=gpu_ms * 1e6, all_gpu_error_ns=error_ms * 1e6)

    before = [sampled(gpu_ms, 1) for gpu_ms in (90, 10, 10, 10)]
    for error_ms, late, wait in ((1.0, 0, True), (600.0, None, False)):
        now = [sampled(gpu_ms, error_ms) for gpu_ms in (80, 600, 610, 620)]
        (row,) = seen(job(100, before), job(101, now)).communicators
        assert (row.late, row.wait_share is not None) == (late, wait)
        assert row.rows[0].rates.gpu_share == 0
        assert (row.rows[1].excess is not None) == wait
        assert row.wait_share is None or 0 <= row.wait_share <= 1


def test_estimates_of_communicators_are_exported_with_their_error() -> None:
    """Rank 0 was sampled; of rank 1 every operation was timed."""
    estimated = replace(sums(10, 20), sampled=4.0, other_gpu_ns=30e6, all_gpu_error_ns=6e6)
    metrics = job_samples(job(1, [estimated, sums(10, 50)]), PreviousReading()).values
    times, errors = (
        {labels[1]: value for labels, value in metrics[name].items()}
        for name in ("communicator_gpu_seconds", "communicator_gpu_seconds_error")
    )
    assert times == pytest.approx({"0": 0.05, "1": 0.05})
    assert errors == pytest.approx({"0": 0.006}), "absent where nothing is extrapolated"


def test_the_window_moves() -> None:
    moments = [job(float(at), [sums(at**2, 1)]) for at in range(20)]
    (row,) = seen(*moments).communicators
    assert row.operations_per_s == pytest.approx((19**2 - 14**2) / 5)


def test_who_is_waited_for() -> None:
    before = [sums(0, 0)] * 4
    (row,) = seen(
        job(0, before), job(1, [sums(10, ms) for ms in (500, 480, 20, 500)])
    ).communicators
    assert row.late == 2
    assert row.wait_share == pytest.approx((480 + 460 + 480) / 1500)
    assert [round(one.excess or 0, 3) for one in row.rows] == [0.48, 0.46, 0, 0.48]
    # Two that are late: the others wait for both, and nobody is the one.
    (row,) = seen(job(0, before), job(1, [sums(10, ms) for ms in (500, 20, 22, 500)])).communicators
    assert row.late is None
    # What costs less than 1 % of the time is no matter.
    (row,) = seen(job(0, before), job(1, [sums(10, ms) for ms in (5, 5, 1, 5)])).communicators
    assert row.late is None


def test_lower_bounds_make_no_bandwidth() -> None:
    """Of a tree, or of a send, the GPU's stop stamp comes early: too short a time."""
    before, after = job(0, [sums(0, 0)] * 2), job(1, [sums(10, 20)] * 2)
    tree = replace(op_class(), exact_stop=False)
    early = replace(sums(5, 0), timed_bytes=0.0, timed_bus_bytes=0.0, least_gpu_ns=30e6)
    for moment, more in ((before, CounterSums()), (after, early)):
        for one in moment.processes.values():
            assert one.reading
            one.reading = replace(one.reading, sums={**one.reading.sums, tree: more})
    (row,) = seen(before, after).communicators
    assert row.rates.algbw_gb_s == pytest.approx(10e6 / 20e6), "of the ring alone"
    assert row.rates.gpu_share == pytest.approx(0.05), "of both"
    metrics = job_samples(after, PreviousReading()).values
    labels = ("0", "AllReduce", "intra")
    assert metrics["gpu_seconds"][labels] == pytest.approx(0.02)
    assert metrics["least_gpu_seconds"][labels] == pytest.approx(0.03)
    assert metrics["timed_bytes"][labels] == 10e6
    assert metrics["operations"][labels] == 15


@pytest.mark.parametrize("function", ["Send", "Recv", "Broadcast", "Reduce"])
def test_nobody_waits_for_a_rank_that_has_less_to_do(function: str) -> None:
    """The first stage of a pipeline sends and does not receive; a root is done before the rest."""
    before, after = job(0, [sums(0, 0)] * 4), job(1, [sums(10, ms) for ms in (500, 480, 20, 500)])
    assert len(job_samples(after, PreviousReading()).values["communicator_gpu_seconds"]) == 4
    for moment in (before, after):
        for one in moment.processes.values():
            assert one.reading
            (counted,) = one.reading.sums.values()
            one.reading = replace(one.reading, sums={op_class(function): counted})
    (row,) = seen(before, after).communicators
    assert row.rates.gpu_share == pytest.approx(0.375)
    assert (row.late, row.wait_share) == (None, None)
    assert [one.excess for one in row.rows] == [None] * 4
    assert "communicator_gpu_seconds" not in job_samples(after, PreviousReading()).values


def test_the_dead_have_no_rates() -> None:
    now = seen(job(0, [sums(0, 0)] * 4), job(1, [sums(10, 100)] * 4, dead="3"))
    (row,) = now.communicators
    assert [one.life for one in row.rows] == ["alive"] * 3 + ["dead"]
    assert row.rows[3].rates == Rates()
    assert row.operations_per_s == 10
    assert (now.jobs[0].running, now.jobs[0].processes, now.jobs[0].dropped) == (3, 4, 3)


def test_processes_that_are_gone_are_forgotten() -> None:
    past = RateHistory()
    top_data([job(0, [sums(0, 0)] * 4)], past)
    top_data([job(1, [sums(0, 0)] * 2)], past)
    assert len(past.moments) == 2


# ---- text ----
def test_rows_are_sorted_and_filtered() -> None:
    (row,) = seen(job(0, [sums(0, 0)] * 3), job(1, [sums(n, 10) for n in (5, 9, 7)])).communicators
    columns = top_tables.RANK_COLUMNS

    def ranks(sort: int, reverse: bool = False, text: str = "") -> list[int]:
        return [
            one.rank for one in top_tables.filter_and_sort(row.rows, columns, sort, reverse, text)
        ]

    assert ranks(5) == [1, 2, 0]  # op/s, largest first
    assert ranks(5, reverse=True) == [0, 2, 1]
    assert ranks(0, reverse=True, text="NODE1") == [0, 1, 2]
    assert ranks(0, text="102") == [2]
    assert ranks(0, text="nothing has this") == []


@pytest.mark.parametrize(
    "columns",
    [
        top_tables.COMMUNICATOR_COLUMNS,
        top_tables.RANK_COLUMNS,
        top_tables.OPERATION_COLUMNS,
        top_tables.TOTAL_COLUMNS,
    ],
)
def test_tables_are_80_wide(columns: tuple[top_tables.TopColumn, ...]) -> None:
    assert sum(column.width for column in columns) == top_tables.WIDTH


@pytest.mark.parametrize(
    ("time_ns", "shown"),
    [(0, "–"), (49e6, "49ms"), (174e6, "0.2s"), (9.94e9, "9.9s"), (41e9, "41s"), (7e11, "12m"), (2e13, "6h")],
)  # fmt: skip
def test_ages_take_four_characters(time_ns: float, shown: str) -> None:
    assert top_tables._short(int(time_ns)) == shown
    assert len(shown) <= 4


def test_hostile_names_reach_no_terminal() -> None:
    now = seen(job(0, [sums(0, 0)] * 2, name=HOSTILE), job(1, [sums(5, 9)] * 2, name=HOSTILE))
    text = "\n".join(top_tables.screen_lines(now))
    assert "\x1b" not in text
    assert "tp[bold]\\x1" in text
    assert all(len(line) <= 80 for line in text.splitlines()[1:])


# ---- the screen ----
def operation(at: int) -> RecentOperation:
    return RecentOperation(
        at * SECOND, "AllReduce", 1 << 20, "float32", "RING", "LL", 9_370_000, "gpu", "done"
    )


HANG = Verdict("world", 7, 4, NEVER_CALLED, hung=True, function="AllReduce", order=8, size_bytes=1 << 20,
               datatype="float32", culprits=(2,), waiting=(0, 1, 3), waited_ns=41 * SECOND)  # fmt: skip


def play(
    now: TopData, *keys: str, recent: tuple[RecentOperation, ...] = (), width: int = 80
) -> list[str]:
    """The screen, 24 lines high, after each key, and at first."""

    async def played() -> list[str]:
        app = Top(JobFollower(("/nowhere",)), 3600)
        app.paused = True
        shown = []
        async with app.run_test(size=(width, 24)) as pilot:
            app.take(now, [*recent], "")
            await pilot.pause()
            shown.append(screen_text(app))
            for key in keys:
                await pilot.press(key)
                if app.level == 2:
                    app.take(now, [*recent], "")
                await pilot.pause()
                shown.append(screen_text(app))
        return shown

    return asyncio.run(played())


def table_of(screen: str) -> list[str]:
    return [line for line in screen.splitlines()[:-1] if line]


def healthy() -> TopData:
    return seen(job(0, [sums(0, 0)] * 4), job(1, [sums(50, ms) for ms in (400, 400, 10, 400)]))


def test_the_first_screen() -> None:
    (screen,) = play(healthy())
    assert table_of(screen) == [
        "job7: 4 of 4 processes alive · intra 0.17/0.25 GB/s · 3 events DROPPED · 2.28.9",
        "trace",
        "communicators (by gpu, PAUSED); GB/s over 5 s; enter opens one",
        "communicator         ranks nodes    op/s  algbw  busbw  gpu wait late open  age",
        "world                    4     –    50.0   0.17   0.25  30%  97%    2    1  5ms",
    ]
    assert "q quit" in screen


def test_from_communicator_to_rank_to_operations_and_back() -> None:
    recent = tuple(operation(at) for at in (3, 2, 1))
    first, ranks, operations, again, up = play(
        healthy(), "enter", "enter", "escape", "escape", recent=recent
    )
    assert table_of(ranks)[3:] == [
        " rank host           gpu#      pid life       op/s  busbw excess open  age drop",
        "    0 node1             0      100 alive      50.0   0.19    39%    1  5ms    0",
        "    1 node1             1      101 alive      50.0   0.19    39%    1  5ms    3",
        "    2 node1             2      102 alive      50.0   7.50     0%    1  5ms    0",
        "    3 node1             3      103 alive      50.0   0.19    39%    1  5ms    0",
    ]
    lines = table_of(operations)
    assert lines[2] == "world, rank 0 on node1, GPU 0, pid 100: alive"
    assert lines[3].startswith(
        "  in flight: AllReduce #8 of 262,144 float32, 5 ms, 1 of 2 channels"
    )
    assert [line[13:] for line in lines[5:]] == [
        "AllReduce            1 MiB float32   RING LL        9.37ms gpu"
    ] * 3
    assert table_of(again) == table_of(ranks)
    assert table_of(up) == table_of(first)


def test_all_ranks_are_shown_with_what_others_wait_for_them() -> None:
    _, ranks, back = play(healthy(), "a", "a")
    assert table_of(ranks)[2:] == [
        "all ranks, over all communicators (by blamed, PAUSED)",
        " rank host        gpu#     pid life      op/s waits blamed in    open  age drop",
        "    2 node1          2     102 alive     50.0    0%    39% world    1  5ms    0",
        "    0 node1          0     100 alive     50.0   39%     0%          1  5ms    0",
        "    1 node1          1     101 alive     50.0   39%     0%          1  5ms    3",
        "    3 node1          3     103 alive     50.0   39%     0%          1  5ms    0",
    ]
    assert "communicators (by gpu" in back


def job_of_two_roles() -> TopData:
    """Thirteen tp groups, of which one waits for a rank, and a world."""
    (world,) = healthy().communicators
    calm = replace(world, late=None, rows=tuple(replace(r, excess=0.0) for r in world.rows))
    others = [replace(calm, key=f"/c\0tp#{n}", name=f"tp#{n}") for n in range(2, 14)]
    late = replace(world, key="/c\0tp", name="tp", ranks=2)
    return TopData(healthy().jobs, (replace(calm, key="/c\0world"), late, *others))


def test_communicators_are_pooled_by_role() -> None:
    _, roles, one_role, back = play(job_of_two_roles(), "p", "enter", "escape")
    where, title, *rows = table_of(roles)[2:]
    assert where == "communicators by role (by gpu, PAUSED); enter: those of one role"
    assert title.split()[:4] == ["role", "number", "ranks", "nodes"]
    assert [row.split()[:3] for row in rows] == [["world", "1", "4"], ["tp", "13", "2-4"]]
    late = title.split().index("late")
    assert [row.split()[late] for row in rows] == ["–", "2"]
    assert "communicators of world (" in one_role
    assert "tp#2" not in one_role
    assert "communicators by role" in back


def test_once_pools_many_communicators() -> None:
    data = job_of_two_roles()
    lines = top_tables.screen_lines(data)
    start = lines.index(next(line for line in lines if line.startswith("role ")))
    assert all(len(line) <= 80 for line in lines[start:])
    few = replace(data, communicators=data.communicators[:3])
    assert not any(line.startswith("role ") for line in top_tables.screen_lines(few))


@pytest.mark.parametrize("key", ["question_mark", "h", "f1"])
def test_help_explains_keys_and_columns_and_any_key_closes_it(key: str) -> None:
    _, shown, closed = play(healthy(), key, "x")
    assert "share of others' time that they wait, begun on this rank" in shown
    assert "where a time comes from" in shown, "all of it is on a screen of 80 x 24"
    assert "all ranks over all communicators" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "begun on this rank" not in closed


def test_no_line_of_help_is_broken() -> None:
    assert max(map(len, top_tables.COLUMN_HELP.values())) <= 58


def test_a_wide_screen_shows_whole_names() -> None:
    long = replace(healthy().communicators[0], name="n" * 60, label="n" * 60)
    data = TopData(healthy().jobs, (long,))
    (narrow,), (wide,) = play(data), play(data, width=160)
    assert "n" * 60 not in narrow
    assert "n" * 60 in wide


def test_a_filter_is_still_there_after_going_back() -> None:
    screens = play(healthy(), "slash", "w", "o", "enter", "enter", "escape")
    assert "only 'wo'" in screens[4]
    assert "only" not in screens[5]
    assert "only 'wo'" in screens[6]


def test_a_hang_stands_on_top() -> None:
    now = healthy()
    (line,) = now.jobs
    hung = replace(now, jobs=(replace(line, verdicts=(HANG,)),))
    (screen,) = play(hung)
    assert screen.splitlines()[0].startswith(
        "HANG world AllReduce #8 (1 MiB float32): rank 2 never called it; 3 ranks have"
    )


def test_filter_sort_and_an_empty_table() -> None:
    *_, typed = play(healthy(), "slash", "w", "o", "r")
    assert "only 'wor'" in typed
    assert any(line.startswith("world") for line in typed.splitlines())
    *_, nothing = play(healthy(), "slash", "z", "z")
    assert not any(line.startswith("world") for line in nothing.splitlines())
    *_, sorted_ = play(healthy(), "s", "s")
    assert "(by late" in sorted_
    (none,) = play(TopData((), ()))
    assert "no running job in /nowhere" in none


def test_a_communicator_that_goes_while_it_is_looked_at() -> None:
    async def played() -> str:
        app = Top(JobFollower(("/nowhere",)), 3600)
        app.paused = True
        async with app.run_test(size=(80, 24)) as pilot:
            app.take(healthy(), [], "")
            await pilot.press("enter")
            app.take(TopData((), ()), [], "")
            await pilot.press("s", "r", "enter")
            await pilot.pause()
            return screen_text(app)

    assert "this communicator is gone; escape goes back" in asyncio.run(played())


def test_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    async def coloured() -> int:
        app = Top(JobFollower(("/nowhere",)), 3600)
        app.paused = True
        async with app.run_test(size=(80, 24)) as pilot:
            app.take(healthy(), [], "")  # a late rank: its row is yellow
            end = time.monotonic() + PATIENCE_S
            while "world" not in screen_text(app) and time.monotonic() < end:
                await pilot.pause(0.01)
            # What would be written to the terminal.
            written = app.screen._compositor.render_update(full=True).render_segments(app.console)
            return len(re.findall(r"\x1b\[[0-9;]*(?:3[1-6]|4[1-6]|[34]8;)", written))

    assert asyncio.run(coloured()) > 0
    monkeypatch.setenv("NO_COLOR", "1")
    assert asyncio.run(coloured()) == 0


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (["/no/such/place"], "cannot follow /no/such/place: no such directory", 2),
        (["--interval", "0"], "--interval must be at least 0.1 s", 2),
        ([], "this is no terminal. Try `ncclscope top --once`", 2),
    ],
)
def test_mistakes_are_sentences(words: list[str], said: str, code: int) -> None:
    printed = command("top", *words)
    assert printed.returncode == code
    assert said in printed.stderr
    assert "Traceback" not in printed.stderr


def test_without_textual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ncclscope.live.top_screen", None)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    with pytest.raises(NcclscopeError, match=r"is not installed. Try `pip install textual`"):
        top.run(argparse.Namespace(captures=[], interval=1.0, once=False))


def test_a_terminal_that_comes_back_gets_the_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []

    def write(_: int, data: bytes) -> int:
        written.append(data)
        if len(written) < 3:
            raise OSError(5, "Input/output error")
        return len(data)

    def run(screen: Top) -> None:
        screen.terminal_failure = "Input/output error"

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("os.write", write)
    monkeypatch.setattr(Top, "run", run)
    with pytest.raises(NcclscopeError, match="the terminal cannot be used any more: Input/output"):
        top.run(argparse.Namespace(captures=[], interval=1.0, once=False))
    assert len(written) == 3


def test_an_unknown_rank_row_is_drawn() -> None:
    row = TopRank(0, "h", "", 1, "alive", Rates(), None, (), None, None, 0, 0, Path("p"), 0)
    assert top_tables.table_lines([row], top_tables.RANK_COLUMNS)[1].split() == [
        "0", "h", "–", "1", "alive", "–", "–", "–", "0", "–", "0",
    ]  # fmt: skip
