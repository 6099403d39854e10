"""The compiled loops over slots and columns, held against plain Python on numbers by chance."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ncclscope.arrays import _abi, intervals, joins
from ncclscope.arrays.joins import ChildEvents, sibling_before
from ncclscope.capture import columns, dtypes, layout
from ncclscope.capture.columns import (
    Events,
    HeadFilter,
    ReadPlan,
    elapsed_column,
    flag_column,
    key,
    number,
    string,
    time,
)
from ncclscope.capture.housekeeping import process_folders
from ncclscope.capture.process import open_process
from ncclscope.capture.segment import Blocks, Damage, read_segment
from ncclscope.capture.slot_log import SlotLog
from ncclscope.capture.tick_clock import TickClock
from ncclscope.model.node_clock import NodeClock, line_at
from ncclscope.model.process import operation_bytes, stamp_repair
from ncclscope.model.process.channels import Channels, on_host_clock, times_of_works
from ncclscope.model.process.gpu_clock import Bound, GpuClock, _best_of_bins, _hull, bound
from ncclscope.model.schema import NONE, STAMPS
from ncclscope.nccl import datatypes
from tests.support.corruption import Damager
from tests.support.player import TRANSCRIPTS
from tests.support.writer import from_transcript

NONCE = 0x8123
CLOCK = TickClock(
    np.array([10**6, 3 * 10**9, 5 * 10**9 + 7]), np.array([500, 10**9, 2 * 10**9]), 0.37, 0
)


def test_numbers_of_stamp_states_are_those_of_the_loops() -> None:
    names = ("VALID", "REPAIRED", "RECOVERED", "REJECTED", "MISSING")
    for name in names:
        assert getattr(stamp_repair, name) == getattr(_abi, name)
    assert len(STAMPS) == len(names)


@pytest.fixture
def draw() -> np.random.Generator:
    return np.random.default_rng(4)


def slots_by_chance(draw: np.random.Generator, kind: str, count: int) -> np.ndarray:
    """Slots of one kind in which everything else is by chance."""
    slots = draw.integers(0, 256, (count, layout.SLOT_BYTES), np.uint8).view(dtypes.ANY_SLOT)
    slots = np.ascontiguousarray(slots.reshape(-1))
    slots["kind"] = layout.KINDS[kind]
    for field in ("t0", "t1"):
        slots[field] = draw.integers(0, 6 * 10**9, count)
    slots["parent"][::2] = draw.integers(0, 1 << 48, len(slots[::2]), np.uint64) | np.uint64(
        NONCE << 48
    )
    return slots


def log_of(slots: np.ndarray) -> SlotLog:
    """All slots as one block of stream 3, from index 100."""
    one = (np.array([value], np.int64) for value in (3 << 48 | 100, len(slots), 0, 42))
    return SlotLog([slots], Blocks(*one), Damage())


def events_of(slots: np.ndarray, kind: str) -> Events:
    return columns.index_events(log_of(slots), CLOCK, NONCE, (kind,))[0][kind]


def keys_of(handles: np.ndarray) -> np.ndarray:
    own = handles >> np.uint64(48) == NONCE
    return np.where(own, (handles & np.uint64((1 << 48) - 1)).astype(np.int64), NONE)


def test_fields_become_columns(draw: np.random.Generator) -> None:
    slots = slots_by_chance(draw, "Coll", 1000)
    own, events = slots.view(dtypes.OURS.dtypes["Coll"]), events_of(slots, "Coll")
    stopped = HeadFilter(states=layout.STATE_STOPPED, not_flags=layout.FLAG_GRAPH)
    found = events.read(
        root=number("root", "i4"),
        warps=number("warps", "i2"),
        count=number("count"),
        call=key("parent"),
        began=time("t0"),
        ended=time("t1", stopped, otherwise=time("t0", HeadFilter(flags=layout.FLAG_GRAPH))),
        function=string("func"),
        chosen=flag_column(stopped),
    )
    has_stopped = (own["states"] & layout.STATE_STOPPED) != 0
    captured = (own["flags"] & layout.FLAG_GRAPH) != 0
    began, ended = CLOCK.to_ns(own["t0"]), CLOCK.to_ns(own["t1"])
    numbers = np.where(own["flags"] & layout.FLAG_NUMBERS, 256, 0)
    expected = {
        "root": own["root"],
        "warps": own["warps"],
        "count": own["count"].view(np.int64),
        "call": keys_of(own["parent"]),
        "began": began,
        "ended": np.where(has_stopped & ~captured, ended, np.where(captured, began, NONE)),
        "function": own["func"] + numbers,
        "chosen": has_stopped & ~captured,
    }
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, name)
    seen = events.names("func", "dtype")
    assert set(np.flatnonzero(seen[1])) == set((own["dtype"] + numbers).tolist())


def test_elements_of_arrays_and_times_since_the_start(draw: np.random.Generator) -> None:
    slots = slots_by_chance(draw, "ProxyStep", 300)
    own, events = slots.view(dtypes.OURS.dtypes["ProxyStep"]), events_of(slots, "ProxyStep")
    found = events.read(size=number("size", "i8", element=2), sent=elapsed_column("dt", 1))
    np.testing.assert_array_equal(found["size"], own["size"][:, 2])
    np.testing.assert_array_equal(found["sent"], CLOCK.to_ns(own["t0"] + own["dt"][:, 1]))


@pytest.mark.parametrize("knots", [1, 2, 40])
def test_times_are_those_of_the_clock(knots: int, draw: np.random.Generator) -> None:
    ticks = np.sort(draw.choice(10**12, knots, replace=False))
    clock = TickClock(ticks, np.sort(draw.choice(10**12, knots, replace=False)), 1.7, 0)
    slots = slots_by_chance(draw, "Group", 2000)
    slots["t0"] = draw.integers(0, 2 * 10**12, 2000)
    slots["t0"][:knots] = ticks
    found = columns.index_events(log_of(slots), clock, NONCE, ("Group",))[0]["Group"].one(
        time("t0")
    )
    fine = slots["states"] & layout.STATE_STOPPED == 0
    assert len(found) >= fine.sum()
    np.testing.assert_array_equal(found, clock.to_ns(slots["t0"]))


def test_only_possible_events_are_listed(draw: np.random.Generator) -> None:
    slots = slots_by_chance(draw, "KernelCh", 4000)
    own = slots.view(dtypes.OURS.dtypes["KernelCh"])
    for name in ("t0", "t1", "t_stop", "gpu_start", "gpu_stop"):
        wild = draw.integers(0, 1 << 64, 4000, np.uint64, endpoint=False)
        own[name] = np.where(draw.random(4000) < 0.9, 10**9, wild)
    low, high = CLOCK.tick_range()

    def covers(name: str) -> np.ndarray:
        return (own[name] >= low) & (own[name] <= high)

    fine = covers("t0") & (covers("t1") | (own["states"] & layout.STATE_STOPPED == 0))
    fine &= covers("t_stop") | (own["states"] & layout.STATE_FIRST == 0)
    fine &= (own["gpu_start"] < 1 << 62) & (own["gpu_stop"] < 1 << 62)
    found, impossible = columns.index_events(log_of(slots), CLOCK, NONCE, ("KernelCh",))
    np.testing.assert_array_equal(found["KernelCh"].keys, (3 << 37 | 100) + np.flatnonzero(fine))
    assert impossible["KernelCh"] == 4000 - fine.sum() > 0


def test_what_is_planned_is_read_as_events_are_found(draw: np.random.Generator) -> None:
    # Of several thousand slots some events stand at the end of what is read at once.
    slots = slots_by_chance(draw, "Coll", 9001)
    kinds = draw.choice([layout.KINDS[name] for name in ("Coll", "CollExt", "KernelLaunch")], 9001)
    slots["kind"] = kinds
    slots["states"] = 0
    plans = {
        "Coll": ReadPlan({"call": key("parent"), "began": time("t0")}, {"tag": number("tag")}),
        "KernelLaunch": ReadPlan({"comm": number("comm", "i4")}),
    }
    asked = ("Coll", "KernelLaunch", "State")
    later_on, _ = columns.index_events(log_of(slots), CLOCK, NONCE, asked)
    at_once, _ = columns.index_events(log_of(slots), CLOCK, NONCE, asked, plans)
    for kind, plan in plans.items():
        assert len(at_once[kind]) == len(later_on[kind]) > 1000
        for name, values in at_once[kind].planned.own.items():
            np.testing.assert_array_equal(values, later_on[kind].read(**plan.own)[name])
        if plan.behind:
            found, expected = (
                events[kind].read_extensions(**plan.behind)["tag"] for events in (at_once, later_on)
            )
            np.testing.assert_array_equal(found, expected)
            assert 0 < np.count_nonzero(expected) < len(expected)
    slots["kind"][17] = layout.KINDS["State"]  # it may change events, so nothing is read before
    found, _ = columns.index_events(log_of(slots), CLOCK, NONCE, asked, plans)
    assert not found["Coll"].planned.own


def test_slots_behind_events_extend_them(draw: np.random.Generator) -> None:
    slots = slots_by_chance(draw, "Coll", 500)
    kinds = draw.choice([layout.KINDS[name] for name in ("Coll", "CollExt", "P2pExt", "Pad")], 500)
    slots["kind"] = kinds
    slots["states"] = 0
    at = np.flatnonzero(kinds == layout.KINDS["Coll"])
    behind = np.minimum(at + 1, 499)
    extended = kinds[behind] == layout.KINDS["CollExt"]
    tags = slots.view(dtypes.OURS.dtypes["CollExt"])["tag"][behind].view(np.int64)
    found = events_of(slots, "Coll").read_extensions(tag=number("tag"))["tag"]
    np.testing.assert_array_equal(found, np.where(extended, tags, 0))


def test_a_segment_is_what_its_blocks_say(draw: np.random.Generator) -> None:
    """Heads, counts and misplaced slots of random segments, slot by slot in Python."""
    for seed in range(40):
        chance = random.Random(seed)
        slots = slots_by_chance(draw, "Pad", chance.randrange(1, 200))
        left, index, bad, kept = 0, 0, 0, []
        for row in range(len(slots)):
            if chance.random() < 0.05:
                head = slots[row : row + 1].view(dtypes.OURS.dtypes["Block"])
                head["kind"] = layout.KINDS[chance.choice(("Block", "Updates"))]
                head["stream"] = chance.choice((1, 7, layout.CONTEXT_STREAM))
                head["first"] = chance.choice((0, 99, (1 << 32) - 3, 1 << 48))
                head["count"] = chance.choice((0, 3, 50, 1 << 31))
                sound = head["stream"][0] < layout.CONTEXT_STREAM and head["first"][0] < 1 << 48
                block = bool(sound and head["kind"][0] == layout.KINDS["Block"])
                left, index = (int(head["count"][0]) if block else 0), int(head["first"][0])
            elif left:
                left -= 1
                right = chance.random() < 0.9
                slots["check"][row] = (index if right else index + 1) & 0xFFFFFFFF
                index += 1
                bad += not right
                kept.append((row, right))
        damage = Damage()
        before = slots["kind"].copy()
        segment = read_segment(slots, damage)
        rows = np.concatenate(
            [
                [],
                *(
                    np.arange(r, r + n)
                    for r, n in zip(segment.blocks.row, segment.blocks.count, strict=True)
                ),
            ]
        )
        assert rows.tolist() == [row for row, _ in kept]
        assert [bool(slots["kind"][row]) for row, _ in kept] == [right for _, right in kept]
        assert damage.bad_slots >= bad
        assert segment.kinds.sum() == len(slots)
        heads = np.isin(before, [layout.KINDS["Block"], layout.KINDS["Updates"]])
        assert segment.kinds[48] + segment.kinds[49] == heads.sum()


def test_keys_are_found(draw: np.random.Generator) -> None:
    for size in (0, 1, 2, 1000):
        among = np.unique(draw.integers(0, 3 * size + 1, size))
        keys = np.concatenate([draw.integers(-1, 3 * size + 2, 700), among, among[::-1]])
        place = {int(value): at for at, value in enumerate(among)}
        np.testing.assert_array_equal(
            joins.positions_of(among, keys), [place.get(int(value), NONE) for value in keys]
        )


def _children(draw: np.random.Generator, count: int) -> ChildEvents:
    streams = draw.integers(0, 3, count) << layout.INDEX_BITS
    keys = np.unique(streams | draw.integers(0, 3 * count + 1, count))
    parents, comms = draw.integers(-1, 4, len(keys)), draw.integers(0, 2, len(keys))
    return ChildEvents(keys, parents, comms.astype(np.int32))


def test_siblings_before(draw: np.random.Generator) -> None:
    for size in (0, 1, 2, 300):
        among, others = _children(draw, size), _children(draw, 300)
        expected = []
        for own, parent, comm in zip(others.keys, others.parents, others.comms, strict=True):
            at = int(np.searchsorted(among.keys, own)) - 1
            alike = (
                at >= 0
                and parent != NONE
                and (among.parents[at], among.comms[at]) == (parent, comm)
                and among.keys[at] >> layout.INDEX_BITS == own >> layout.INDEX_BITS
            )
            expected.append(at if alike else NONE)
        np.testing.assert_array_equal(sibling_before(among, others), expected)
        assert size < 300 or max(expected) > NONE


def test_sizes_of_operations(draw: np.random.Generator) -> None:
    names, functions, ranks = ["float32", "odd", "int64"], ["AllReduce", "AllGather"], [8, NONE, 3]
    count = 2000
    counts = np.where(draw.random(count) < 0.2, 1 << draw.integers(0, 63, count), NONE)
    counts = np.where(draw.random(count) < 0.7, draw.integers(0, 1 << 20, count), counts)
    datatype, function = (draw.integers(-1, n, count).astype(np.int8) for n in (3, 2))
    datatype[draw.random(count) < 0.2] = operation_bytes.IN_BYTES
    comm = draw.integers(0, 3, count).astype(np.int32)
    found = operation_bytes.size_bytes(
        counts, datatype, function, comm, names, functions, np.array(ranks)
    )
    for at in range(count):
        # An unknown datatype has no size.
        each = {0: 4, 1: 0, 2: 8, NONE: 0, int(operation_bytes.IN_BYTES): 1}[int(datatype[at])]
        each *= max(ranks[comm[at]], 1) if function[at] == 1 else 1
        size = int(counts[at]) * each
        assert found[at] == (size if each and 0 <= size <= 1 << 42 else NONE)


def test_elements_of_less_than_a_byte_are_rounded_up(monkeypatch: pytest.MonkeyPatch) -> None:
    half = replace(datatypes.DATATYPES["int8"], name="float4", bits=4)
    monkeypatch.setitem(datatypes.DATATYPES, "float4", half)
    counts, code = np.array([0, 1, 2, 7]), np.zeros(4, np.int8)
    comm = np.zeros(4, np.int32)
    found = operation_bytes.size_bytes(
        counts, code, code, comm, ["float4"], ["AllReduce"], np.array([4])
    )
    assert found.tolist() == [0, 1, 1, 4]


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8"])
def test_columns_by_places(dtype: str, draw: np.random.Generator) -> None:
    first, second = (draw.integers(-100, 100, count).astype(dtype) for count in (50, 70))
    a, b = draw.integers(-1, 50, 300), draw.integers(-1, 70, 300)
    expected = np.where(a >= 0, first[a], np.where(b >= 0, second[b], 9)).astype(dtype)
    np.testing.assert_array_equal(joins.coalesce((first, a), (second, b), otherwise=9), expected)
    same = np.arange(50)
    np.testing.assert_array_equal(joins.take(first, same), first)
    beyond = np.array([0, 49, 50, -1, -5, 1 << 60])
    np.testing.assert_array_equal(joins.take(first, beyond), [first[0], first[49], *[NONE] * 4])


def test_columns_that_stay_as_they_are_are_not_copied() -> None:
    values = np.arange(100) * 7
    same = joins.take(values, np.arange(100))
    assert np.shares_memory(same, values)
    assert not same.flags.writeable
    np.testing.assert_array_equal(joins.take(values, np.arange(60)), values[:60])
    for size in (0, 1, 1023, 1024, 1025, 5000):
        places = np.arange(size)
        assert joins.is_identity(places)
        for at in {0, size // 2, size - 1} if size else ():
            other = places.copy()
            other[at] += 1
            assert not joins.is_identity(other)
    assert len(joins.take(values, np.arange(101))) == 101


def test_places_are_marked(draw: np.random.Generator) -> None:
    places = draw.integers(-5, 90, 60)
    expected = np.isin(np.arange(80), places)
    np.testing.assert_array_equal(joins.mask_of(places, 80), expected)


def test_small_tables(draw: np.random.Generator) -> None:
    for table in (np.arange(9, dtype=np.int8), np.arange(9) * 1_000_000_007):
        for dtype in (np.int8, np.int32):
            places = draw.integers(-3, 12, 500).astype(dtype)
            inside = (places >= 0) & (places < 9)
            expected = np.where(inside, table[np.where(inside, places, 0)], 5)
            np.testing.assert_array_equal(joins.take_small(table, places, 5), expected)


def test_keys_are_numbered(draw: np.random.Generator) -> None:
    for most in (1, 3, 400, 1 << 62):
        keys = draw.integers(0, most, 900)
        keys[::50] = NONE
        seen: dict[int, int] = {}
        times, first = [], []
        order: dict[int, int] = {}
        for value in keys.tolist():
            times.append(seen.get(value, 0))
            seen[value] = times[-1] + 1
            first.append(NONE if value == NONE else order.setdefault(value, len(order)))
        np.testing.assert_array_equal(joins.running_count(keys), times)
        group, groups = joins.factorize(keys)
        np.testing.assert_array_equal(group, first)
        assert groups == len(order)


def test_unions_of_intervals(draw: np.random.Generator) -> None:
    for sort in (True, False):
        group = draw.integers(0, 5, 400).astype(np.int32)
        start = draw.integers(0, 3000, 400)
        start = np.sort(start) if sort else start
        end = start + draw.integers(0, 40, 400)
        expected = []
        for one in range(5):
            own = zip(start[group == one], end[group == one], strict=True)
            expected.append(len({t for a, b in own for t in range(a, b)}))
        assert intervals.union_lengths(group, 5, start, end).tolist() == expected


def test_a_bound_is_a_line_between_knots(draw: np.random.Generator) -> None:
    knots = np.sort(draw.choice(10**10, 30, replace=False)).astype(np.float64)
    made = Bound(10**15, -(10**6), knots, draw.normal(0, 1e5, 30))
    at = 10**15 + draw.integers(-(10**9), 2 * 10**10, 5000)
    time_ns = (at - 10**15).astype(np.float64)
    value = np.interp(time_ns, knots, made.values)
    outside = np.maximum(knots[0] - time_ns, 0) + np.maximum(time_ns - knots[-1], 0)
    expected = np.ceil(value - outside * 100e-6).astype(np.int64) - 10**6
    np.testing.assert_array_equal(made.at(at), expected)


@pytest.mark.parametrize("knots", [1, 2, 3, 60])
def test_times_of_a_node_on_the_one_clock(knots: int, draw: np.random.Generator) -> None:
    local = np.sort(draw.choice(10**12, knots, replace=False)) + 10**15
    offset = 10**17 + draw.integers(-(10**6), 10**6, knots)
    clock = NodeClock(local, offset, np.zeros(knots), 0)
    at = np.concatenate([10**15 + draw.integers(-(10**11), 2 * 10**12, 4000), local, [NONE]])
    away = (at - local[0]).astype(np.float64)
    edges, change = (local - local[0]).astype(float), (offset - offset[0]).astype(float)
    expected = np.rint(line_at(away, edges, change)).astype(np.int64) + at + offset[0]
    np.testing.assert_array_equal(clock.to_reference(at), expected)


def test_a_hull_lies_over_all_points_and_turns_one_way(draw: np.random.Generator) -> None:
    for size in (1, 2, 3, 50, 800):
        time_ns = np.sort(draw.integers(0, 2 * size, size)).astype(np.float64)
        value = draw.normal(0, 100, size).round()
        knots, values = _hull(time_ns, value)
        assert (np.interp(time_ns, knots, values) >= value - 1e-9).all()
        assert set(zip(knots.tolist(), values.tolist(), strict=True)) <= set(
            zip(time_ns.tolist(), value.tolist(), strict=True)
        )
        assert (np.diff(knots) > 0).all()
        assert (np.diff(np.diff(values) / np.diff(knots)) < 0).all()


def test_the_highest_point_of_each_bin_counts(draw: np.random.Generator) -> None:
    time_ns = 10**12 + np.sort(draw.integers(0, 10**9, 500))
    value, minus = draw.integers(0, 50, 500), draw.integers(0, 50, 500)
    chosen = draw.random(500) < 0.7
    for mask in (None, chosen, np.zeros(500, bool)):
        use = np.flatnonzero(np.ones(500, bool) if mask is None else mask)
        best, first, highest = _best_of_bins(time_ns, value, minus, mask)
        if not len(use):
            assert not len(best)
            continue
        assert (first, highest) == (time_ns[use].min(), (value - minus)[use].max())
        bins: dict[int, list[int]] = {}
        for at in use.tolist():
            bins.setdefault(int(time_ns[at] - first) // 40_000_000, []).append(at)
        assert best.tolist() == [
            max(b, key=lambda at: value[at] - minus[at]) for b in bins.values()
        ]


def _channels(draw: np.random.Generator, count: int, works: int) -> Channels:
    gpu_start = np.sort(draw.integers(10**9, 2 * 10**9, count))
    gpu_stop = np.where(draw.random(count) < 0.1, NONE, gpu_start + draw.integers(1, 10**5, count))
    seen = gpu_start - 10**9 + draw.integers(0, 10**5, count)
    return Channels(
        work=draw.integers(-1, works, count),
        comm=draw.integers(0, 1 << 16, 5)[draw.integers(0, 5, count)].astype(np.int32),
        channel=draw.integers(0, 3, count).astype(np.int16),
        gpu=np.zeros(count, np.int32),
        gpu_start=gpu_start,
        gpu_stop=gpu_stop,
        seen_start_ns=np.where(draw.random(count) < 0.05, NONE, seen),
        seen_end_ns=np.where(draw.random(count) < 0.05, NONE, seen + 10**5),
        stamp=draw.integers(0, 5, count).astype(np.int8),
        reason=draw.integers(0, 6, count).astype(np.int8),
    )


def test_channels_are_numbered(draw: np.random.Generator) -> None:
    channels = _channels(draw, 500, 100)
    numbers: dict[tuple[int, int], int] = {}
    expected = [
        NONE if stop == NONE else numbers.setdefault((comm, channel), len(numbers))
        for comm, channel, stop in zip(
            channels.comm.tolist(), channels.channel.tolist(), channels.gpu_stop, strict=True
        )
    ]
    strand, strands = channels.strands()
    np.testing.assert_array_equal(strand, expected)
    assert strands == len(numbers)


def test_launches_of_channels(draw: np.random.Generator) -> None:
    channels = _channels(draw, 500, 100)
    launch_ns = np.where(draw.random(90) < 0.2, NONE, draw.integers(0, 10**9, 90))
    channels = replace(channels, gpu=draw.integers(0, 2, 500).astype(np.int32))
    launched, sure, number = channels.launches(1, launch_ns)
    inside = (channels.work >= 0) & (channels.work < 90)  # the others are damage
    expected = np.where(inside, launch_ns[np.where(inside, channels.work, 0)], NONE)
    np.testing.assert_array_equal(launched, expected)
    own = (channels.gpu == 1) & (channels.stamp <= 1) & (channels.gpu_start != NONE)
    np.testing.assert_array_equal(sure, own & (expected != NONE))
    assert number == sure.sum()


def test_works_are_timed_by_their_channels(draw: np.random.Generator) -> None:
    works = 700
    channels = _channels(draw, 3000, works)
    gpu_start, gpu_stop = channels.gpu_start, channels.gpu_stop
    lower = bound(np.sort(gpu_start - 10**9), np.full(3000, 10**9))
    clocks = {0: GpuClock(lower, Bound(0, 0, np.empty(0), np.empty(0)), 0)}
    start, end = on_host_clock(channels, clocks)
    timed = (gpu_stop != NONE) & (channels.stamp <= 2)
    assert (start[~timed] == NONE).all()
    assert (end[timed] - start[timed] == (gpu_stop - gpu_start)[timed]).all()
    own = timed & (channels.stamp == 0) & (channels.seen_end_ns != NONE)
    assert (end <= channels.seen_end_ns)[own].all()

    class Few:  # all that is asked of works
        channels = np.full(works, 4, np.int16)

        def __len__(self) -> int:
            return works

    found = times_of_works(Few(), channels, clocks)
    for work in range(works):
        own = channels.work == work
        good, seen = own & timed, own & (channels.seen_start_ns != NONE)
        assert found.start_ns[work] == (start[good].min() if good.any() else NONE)
        assert found.end_ns[work] == (end[good].max() if good.any() else NONE)
        assert found.kernels[work] == (own & (channels.stamp != 2)).sum()
        assert found.stamp[work] == channels.stamp[own].max(initial=NONE)
        assert found.reason[work] == channels.reason[own].max(initial=0)
        running = bool((channels.seen_end_ns[seen] == NONE).any())
        assert found.running[work] == running
        last = channels.seen_end_ns[seen].max(initial=NONE)
        assert found.seen_end_ns[work] == (NONE if running else last)
        few = 0 < good.sum() < max(4, found.kernels[work])
        assert found.partial[work] == few


def test_damaged_logs_are_indexed_within_their_bounds(tmp_path: Path) -> None:
    """Every address is that of a slot of the log, whatever the blocks say."""
    whole = tmp_path / "whole"
    from_transcript(TRANSCRIPTS / "2.31.2-v7-2ranks", whole)
    kinds = tuple(name for name, kind in layout.KINDS.items() if kind <= layout.EVENT_KINDS)
    for seed in range(30):
        folder = process_folders(whole)[seed % 2]
        for file in folder.glob("log.*"):
            Damager(seed).damage(file)
        process = open_process(folder)
        found, _ = columns.index_events(process.slots, process.clock, process.header.nonce, kinds)
        for kind, events in found.items():
            for address in events.slots.tolist():
                assert any(
                    0 <= address - columns.address(segment) <= segment.nbytes - layout.SLOT_BYTES
                    for segment in process.slots.segments
                )
            assert all(
                int(events.slot(at)["kind"]) == layout.KINDS[kind]
                for at in range(min(len(events), 9))
            )
