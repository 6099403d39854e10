"""Works that the device counted and the host did not, and works that a pause cut off."""

from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest

from ncclscope.arrays.joins import factorize
from ncclscope.capture import layout
from ncclscope.model.process import gpu_stamps, stamp_repair
from ncclscope.model.process.channels import Channels
from ncclscope.model.process.gpu_stamps import (
    StartBounds,
    _cut_off,
    _had_kernels,
    _lower_bounds,
    _repaired,
    _uncounted,
)
from ncclscope.model.process.stamp_repair import (
    FAR_FUTURE,
    FAR_PAST,
    REASONS,
    ChannelEvents,
    repair,
)
from ncclscope.model.process.unrecorded_works import UnrecordedWorks, unrecorded_works_of
from ncclscope.model.process.works import COLLECTIVE, SEND, Works
from ncclscope.model.schema import NONE, STAMPS
from ncclscope.model.vocabulary import Vocabulary


def works(**columns: list[int]) -> Works:
    """Works without peculiarities, but for these columns."""
    count = len(columns["form"])
    narrow = {
        "channels": np.int16,
        "warps": np.int16,
        "form": np.int8,
        "function": np.int8,
        "symmetric": np.bool_,
    }
    made = {
        field.name: np.array(columns.get(field.name, [0] * count), narrow.get(field.name, np.int64))
        for field in fields(Works)
    }
    return Works(**made)


@pytest.mark.parametrize(
    ("form", "group", "peer", "expected"),
    [
        (COLLECTIVE, [7, 9], -1, 4),
        (COLLECTIVE, [7, 7], -1, FAR_FUTURE),  # two in one launch share its channels somehow
        (SEND, [7, 9], 3, FAR_FUTURE),
        (SEND, [7, 9], 0, 1),  # to itself
    ],
)
def test_the_channels_that_it_may_have_used(
    form: int, group: list[int], peer: int, expected: int
) -> None:
    silent = works(form=[form] * 2, group=group, channels=[4, 4], peer=[peer] * 2)
    found = _uncounted(
        silent, np.zeros(2, bool), np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones(1, bool)
    )
    assert found.first_channels.tolist() == [expected] * 2


def random_works(count: int, comms: int, span_ns: int) -> tuple[Works, np.ndarray]:
    """Works of some communicators, and which have kernels."""
    draw = np.random.default_rng(count)
    enqueue_ns = draw.integers(0, span_ns, count)  # of several threads: in no order
    made = works(
        form=[COLLECTIVE] * count,
        comm=draw.integers(0, comms, count).tolist(),
        enqueue_ns=enqueue_ns.tolist(),
    )
    return made, draw.random(count) < 0.6


def test_what_a_pause_cut_off_is_behind_the_last_kernel_before_it() -> None:
    some, has_kernels = random_works(400, 5, 300)
    pauses_ns = np.array([40, 40, 90, 91, 250])
    expected = np.zeros(len(some), bool)
    for end_ns in pauses_ns:
        for comm in range(5):
            own = (some.enqueue_ns <= end_ns) & (some.comm == comm)
            last_ns = some.enqueue_ns[own & has_kernels].max(initial=FAR_PAST)
            expected |= own & ~has_kernels & (some.enqueue_ns > last_ns)
    assert 5 < expected.sum() < 100
    assert _cut_off(pauses_ns, some, has_kernels).tolist() == expected.tolist()
    assert not _cut_off(np.empty(0, np.int64), some, has_kernels).any()


def test_many_pauses_and_communicators_cost_no_more_than_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each work is looked at once, not once for every pause and communicator."""
    looked_at = []

    def count_rows(keys: np.ndarray) -> tuple[np.ndarray, int]:
        looked_at.append(len(keys))
        return factorize(keys)

    monkeypatch.setattr(gpu_stamps, "factorize", count_rows)
    some, has_kernels = random_works(20_000, 1_000, 10**9)
    assert _cut_off(np.arange(0, 10**9, 10**6), some, has_kernels).any()
    assert looked_at == [20_000]


# ---- the example of stamp_repair ----
US = 1000


def example(launch_of_c_us: int = 400, uncounted: tuple[int, ...] = (0, 0, 1, 1)) -> ChannelEvents:
    """Works A, B, C, D of one channel; C's event brings the stamp of X, which has no event."""
    starts = np.array([105, 205, 305, 405]) * US
    launches = np.array([100, 200, launch_of_c_us, 500]) * US
    return ChannelEvents(
        gpu_start=starts,
        gpu_stop=starts + 10 * US,
        latest_start_ns=starts,
        latest_stop_ns=starts + 10 * US,
        group=np.arange(4),
        not_before_ns=launches,
        launch_end_ns=np.full(4, FAR_FUTURE),
        uncounted_before=np.array(uncounted),
        uncounted_in_group=np.zeros(4, bool),
    )


def test_a_stamp_that_lags_is_found_with_a_later_event() -> None:
    found = repair(example())
    names = [STAMPS[code] for code in found.stamp]
    assert names == ["valid", "valid", "repaired", "missing"]
    assert found.owner.tolist() == [0, 1, 3, NONE]
    assert found.left_over.tolist() == [2]
    assert [REASONS[code] for code in found.reason] == ["", "", "", "stamp never delivered"]


def test_stamps_are_not_guessed() -> None:
    found = repair(example(uncounted=(0, 0, 0, 0)))
    assert REASONS[found.reason[2]] == "stamps contradict each other"
    found = repair(example(launch_of_c_us=290))
    assert REASONS[found.reason[2]] == "stamps are ambiguous"
    assert found.owner[2] == NONE


@pytest.mark.parametrize(("after_us", "reason"), [(24, ""), (26, "stamps are ambiguous")])
def test_a_kernel_that_starts_right_after_its_launch_has_its_own_stamp(
    after_us: int, reason: str
) -> None:
    """A work may have gone uncounted before, but then the channel would have been busy."""
    launch, launch_end = np.array([100, 200]) * US, np.array([110, 210]) * US
    starts = launch_end + after_us * US
    found = repair(
        ChannelEvents(
            gpu_start=starts,
            gpu_stop=starts + 10 * US,
            latest_start_ns=starts,
            latest_stop_ns=starts + 10 * US,
            group=np.arange(2),
            not_before_ns=launch,
            launch_end_ns=launch_end,
            uncounted_before=np.array([0, 1]),
            uncounted_in_group=np.zeros(2, bool),
        )
    )
    assert REASONS[found.reason[1]] == reason


# ---- pauses ----
PAUSE_US = 1_000_000
BEFORE = 6  # works on record before the pause, and behind it


def paused_job(
    lag_before: int, lag_behind: int, unseen: UnrecordedWorks, alone: list[int], ahead_us: int = 300
) -> Channels:
    """One channel whose works follow each other every 100 µs, launched so long ahead; then a pause.
    Kernel events bring stamps of works that many places earlier. `alone`: works before the pause
    that the device alone counted.
    """
    count = 2 * BEFORE
    begins = np.array([100 * k + (PAUSE_US if k >= BEFORE else 0) for k in range(count)]) * US
    lags = np.array([0] + [lag_before] * (BEFORE - 1) + [lag_behind] * BEFORE)
    made = works(
        form=[COLLECTIVE] * (count + len(alone)),
        enqueue_ns=[*(begins - ahead_us * US).tolist(), *alone],
        channels=[1] * (count + len(alone)),
        group=list(range(1, count + len(alone) + 1)),
    )
    launched = made.enqueue_ns.copy()
    launches = StartBounds(launched, launched + US, np.zeros(len(made), bool))
    zeros = np.zeros(count, np.int64)
    # The second event brings the stamp of the work in between.
    start = begins - np.where(np.arange(count) == 1, lags * 40, lags * 100) * US
    channels = Channels(
        np.arange(count), zeros.astype(np.int32), zeros.astype(np.int16), zeros.astype(np.int32),
        start, start + 60 * US, begins, begins + 65 * US,
        np.full(count, stamp_repair.MISSING, np.int8), zeros.astype(np.int8),
    )  # fmt: skip
    lower = _lower_bounds(channels, np.ones(count, bool))
    has_kernels = np.arange(len(made)) < count
    uncounted = _uncounted(made, has_kernels, zeros[:1] - 1, zeros, np.ones(count, bool))
    return _repaired(
        channels, np.arange(count), zeros.astype(np.int32), np.ones(1, bool), made, launches,
        lower, uncounted, unseen,
    )  # fmt: skip


def unseen(at_most: int, pauses: bool = True) -> UnrecordedWorks:
    us = (-1000, 100 * BEFORE - 100, PAUSE_US, PAUSE_US + 200 * BEFORE)
    edges = np.array(us, np.int64) * US
    most = {0: at_most} if at_most else {}
    return UnrecordedWorks(edges if pauses else edges[:0], int(edges[1]), most, {0: 1})


def test_stamps_behind_a_pause_with_a_send_to_itself_are_not_taken_for_right() -> None:
    """Each fits its launch, and each is that of the work before: nothing on record says so."""
    wrong = paused_job(0, 1, unseen(0), [])
    assert (wrong.stamp == stamp_repair.VALID).all(), "the trap"
    judged = paused_job(0, 1, unseen(3), [])
    assert judged.stamp.tolist() == [stamp_repair.VALID] * BEFORE + [stamp_repair.REJECTED] * BEFORE
    assert set(judged.reason[BEFORE:].tolist()) == {stamp_repair.AMBIGUOUS}
    assert (judged.gpu_start[BEFORE:] == -1).all()


def test_a_stamp_that_came_during_a_pause_is_not_looked_for_behind_it() -> None:
    """One work before the pause was counted by the device alone: the stamp of the last one there
    was brought by an event that is not on record, and not by the first one behind the pause.
    """
    alone = [50 * US]  # behind the first
    mixed = paused_job(1, 1, unseen(0, pauses=False), alone, ahead_us=20)
    assert mixed.stamp[BEFORE - 1] == stamp_repair.REPAIRED
    assert mixed.gpu_start[BEFORE - 1] > 100 * BEFORE * US, "the trap"
    found = paused_job(1, 1, unseen(0), alone, ahead_us=20)
    true_start = np.array([100 * k for k in range(BEFORE)]) * US
    assert found.stamp[: BEFORE - 1].tolist() == [stamp_repair.VALID] + [stamp_repair.REPAIRED] * (
        BEFORE - 2
    )
    assert (found.gpu_start[: BEFORE - 1] == true_start[:-1]).all()
    assert (found.stamp[BEFORE - 1], found.gpu_start[BEFORE - 1]) == (stamp_repair.MISSING, -1)
    assert found.reason[BEFORE - 1] == stamp_repair.NEVER_DELIVERED


def test_what_memory_has_of_a_pause_says_nothing_of_stamps() -> None:
    """Works without kernels are those that the device alone counted; not of a time in which kernels
    were not recorded.
    """
    edges = np.array([100, 200, 300, 400], np.int64)
    windows = UnrecordedWorks(edges, 200, {}, {})
    made = works(form=[COLLECTIVE] * 6, enqueue_ns=[50, 110, 150, 250, 310, 350])
    has_kernels = np.array([False, False, True, False, False, True])
    found = _had_kernels(windows, made, has_kernels)
    assert found.tolist() == [True, False, True, True, False, True]


def test_what_nobody_saw_is_counted() -> None:
    """Counted sends less those on record; from the first pause on, or from the start."""
    words = Vocabulary()
    codes = {name: words.code("function", name) for name in ("Send", "AllReduce")}
    made = works(form=[SEND, COLLECTIVE], function=[codes["Send"], codes["AllReduce"]])

    def tally(comm: int, function: int, calls: int) -> SimpleNamespace:
        key = SimpleNamespace(level=layout.LEVEL_WORK, communicator=comm, function=function)
        return SimpleNamespace(key=key, calls=calls)

    def process(version: int, mode: str, *zooms: tuple[int, bool]) -> SimpleNamespace:
        return SimpleNamespace(
            call_counts=[tally(0, 1, 5), tally(0, 2, 90), tally(0, 3, 7)],
            strings={1: "Send", 2: "AllReduce", 3: "Broadcast"},
            communicators=[SimpleNamespace(number=0, version=version)],
            mode_changes=[
                SimpleNamespace(ticks=at, writes=w, mode="trace", gpu_timing="") for at, w in zooms
            ],
            identity={"mode": mode}, counters={}, dropped=lambda: 0, gave_up_events=lambda: False,
            header=SimpleNamespace(start_monotonic_ns=0),
            clock=SimpleNamespace(monotonic_ns=np.array([0, 1000]), to_ns=lambda t: t.astype(np.int64)),
        )  # fmt: skip

    found = unrecorded_works_of(process(5, "trace", (300, False), (600, True)), made, words)
    assert (found.at_most, found.known_until_ns) == ({0: 4}, 300)
    assert found.before(0, 0, np.array([200, 700])).tolist() == [0, 4]
    assert found.before(0, 1, np.array([700])).tolist() == [0], "copies to itself use channel 0"
    # What memory that was left behind has of the pause is not all that there was.
    late = works(form=[SEND], function=[codes["Send"]], enqueue_ns=[450])
    found = unrecorded_works_of(process(5, "trace", (300, False), (600, True)), late, words)
    assert found.at_most == {0: 5}
    assert found.outside(np.array([200, 450, 700])).tolist() == [False, True, False]
    assert unrecorded_works_of(process(5, "profile"), made, words).outside(np.array([1, 900])).all()
    assert (
        not unrecorded_works_of(process(5, "trace"), made, words).outside(np.array([1, 900])).any()
    )
    found = unrecorded_works_of(process(7, "profile", (600, True)), made, words)
    assert found.at_most == {0: 7}, "Broadcasts from 2.31 on"
    assert found.before(0, 5, np.array([700])).tolist() == [7]
