"""Instances: operations of all ranks that belong together, wait and wire as defined."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from ncclscope.model import schema
from ncclscope.model.align.bounds import Bounds
from ncclscope.model.align.host_clocks import HostClocks, solve
from ncclscope.model.match.instances import Instances, merge_instances
from ncclscope.model.match.votes import ballots, majority
from ncclscope.model.match.waits import Waits
from ncclscope.model.schema import FORMS, NONE, SOURCES
from ncclscope.model.streams import StreamCounter, rules_of

Columns = dict[str, npt.NDArray[np.generic]]
FUNCTIONS = ["AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "Send", "Recv"]
ALGORITHMS = ["RING", "TREE", "PAT", "NVLS"]
RULES = rules_of(FUNCTIONS, ALGORITHMS)
LONE = solve([0])
DEFAULTS = {
    "form": 0,
    "function": 0,
    "datatype": 0,
    "algorithm": 0,
    "source": 0,
    "replay": 0,
    "symmetric": 0,
    "communicator": 0,
    "node": 0,
    "size_bytes": 1024,
}


def operations(start: Sequence[int], end: Sequence[int], **values: int | Sequence[int]) -> Columns:
    """One process's operations, numbered in their order where nothing else is said."""
    columns = schema.empty(schema.OPERATIONS, len(start))
    columns["call_order"][:] = np.arange(len(start))
    columns["start_ns"][:], columns["end_ns"][:] = start, end
    columns["duration_ns"][:] = np.array(end) - np.array(start)
    for name, value in (DEFAULTS | values).items():
        columns[name][:] = value
    return columns


def matched(
    processes: Sequence[Columns],
    ranks: Sequence[int],
    clocks: HostClocks = LONE,
    widths: Sequence[int] | None = None,
) -> tuple[Columns, list[dict[str, npt.NDArray[np.int64]]]]:
    counter = StreamCounter()
    for columns in processes:
        counter.add(columns)
    instances = Instances(counter.streams(), RULES)
    for columns, width_ns in zip(processes, widths or [0] * len(processes), strict=True):
        instances.add(columns, width_ns)
    table, states = instances.table(clocks, counter.nodes(), np.array(ranks))
    waits = Waits(counter.streams(), RULES, states)
    return table, [waits.of(columns) for columns in processes]


def tied(error_ns: int) -> HostClocks:
    """Two nodes whose clocks differ by nothing, known to this error."""
    a, b = np.array([0, 1] * 50), np.array([1, 0] * 50)
    at = np.repeat(np.arange(50) * 10_000_000, 2)
    return solve([0, 0], Bounds(a, b, at + error_ns, at))


# ---- states of processes that were gathered apart ----
@pytest.mark.parametrize("seed", range(4))
def test_merged_states_are_those_of_all_processes(seed: int) -> None:
    """Ranks disagree on sizes and functions, with and without a majority, and some know neither."""
    random = np.random.default_rng(seed)
    processes = []
    for rank in range(9):
        start = random.integers(0, 30, 40) * 10  # some at the same time
        columns = operations(start, start + random.integers(5, 99, 40), rank=rank)
        columns["size_bytes"][:] = random.choice([NONE, 8, 16, 32], 40, p=[0.1, 0.5, 0.2, 0.2])
        columns["function"][:] = random.choice([NONE, 0, 1], 40, p=[0.1, 0.8, 0.1])
        for name in ("size_bytes", "function"):  # half of them agree
            columns[name][20:] = np.where(columns[name][20:] == NONE, NONE, 0)
        columns["root"][:] = 3
        processes.append(columns)
    expected, waits = matched(processes, [9])
    counter = StreamCounter()
    for columns in processes:
        counter.add(columns)
    streams = counter.streams()
    parts = []
    for some in (processes[:2], processes[2:3], processes[3:]):
        parts.append(Instances(streams, RULES))
        for columns in some:
            parts[-1].add(columns)
    merged = merge_instances([merge_instances(parts[:2]), parts[2]])
    rows = merged.mismatches()
    cast = [ballot for own in processes for ballot in ballots(own, streams.find(own)[1], rows)]
    merged.set_agreed(rows, majority(cast, rows, RULES.send))
    table, states = merged.table(LONE, counter.nodes(), np.array([9]))
    assert 0 < len(rows) < len(table["mismatch"])
    for name, values in expected.items():
        assert table[name].tolist() == values.tolist(), name
    again = Waits(streams, RULES, states)
    for columns, values in zip(processes, waits, strict=True):
        assert {n: v.tolist() for n, v in again.of(columns).items()} == {
            n: v.tolist() for n, v in values.items()
        }


# ---- wait and wire ----
@pytest.mark.parametrize("algorithm", ["RING", "PAT"])
@pytest.mark.parametrize("function", ["AllReduce", "AllGather", "ReduceScatter"])
def test_all_wait_for_the_last(function: str, algorithm: str) -> None:
    codes = {"function": FUNCTIONS.index(function), "algorithm": ALGORITHMS.index(algorithm)}
    starts, ends = [[100, 1000], [400, 1300], [250, 1100]], [[600, 1500], [610, 1490], [590, 1510]]
    processes = [
        operations(start, end, rank=rank, **codes)
        for rank, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    table, waits = matched(processes, [3])
    assert table["first_start_ns"].tolist() == [100, 1000]
    assert table["last_start_ns"].tolist() == [400, 1300]
    assert table["last_end_ns"].tolist() == [610, 1510]
    assert table["last_communicator_rank"].tolist() == [1, 1]
    assert table["skew_ns"].tolist() == [300, 300]
    assert table["ranks_seen"].tolist() == table["ranks_expected"].tolist() == [3, 3]
    assert table["ranks_timed"].tolist() == [3, 3]
    assert table["mismatch"].tolist() == [0, 0]
    assert [wait["wait_ns"].tolist() for wait in waits] == [[300, 300], [0, 0], [150, 200]]
    assert [wait["wire_ns"].tolist() for wait in waits] == [[200, 200], [210, 190], [190, 210]]
    # Durations are 500, 210, 340 and 500, 190, 410.
    relative = [wait["relative_wait_ns"].tolist() for wait in waits]
    assert relative == [[290, 310], [0, 0], [130, 220]]
    assert [wait["instance"].tolist() for wait in waits] == [[0, 1]] * 3


def test_a_broadcast_waits_for_its_root() -> None:
    code = {"function": FUNCTIONS.index("Broadcast"), "root": 1}
    times = [(100, 500), (300, 350), (400, 520)]
    processes = [operations([s], [e], rank=rank, **code) for rank, (s, e) in enumerate(times)]
    _, waits = matched(processes, [3])
    assert [wait["wait_ns"].tolist() for wait in waits] == [[200], [0], [0]]
    assert [wait["wire_ns"].tolist() for wait in waits] == [[200], [50], [120]]
    assert [wait["relative_wait_ns"].tolist() for wait in waits] == [[NONE]] * 3
    _, waits = matched([processes[0], processes[2]], [3])  # the root is missing
    assert [wait["wait_ns"].tolist() for wait in waits] == [[NONE]] * 2


def test_only_the_root_of_a_reduce_waits() -> None:
    code = {"function": FUNCTIONS.index("Reduce"), "root": 0}
    times = [(100, 500), (300, 350), (400, 520)]
    processes = [operations([s], [e], rank=rank, **code) for rank, (s, e) in enumerate(times)]
    table, waits = matched(processes, [3])
    assert [wait["wait_ns"].tolist() for wait in waits] == [[300], [NONE], [NONE]]
    assert [wait["wire_ns"].tolist() for wait in waits] == [[100], [NONE], [NONE]]
    assert table["last_communicator_rank"].tolist() == [2]


@pytest.mark.parametrize("algorithm", ["TREE", "NVLS"])
def test_trees_have_arrivals_but_no_waits(algorithm: str) -> None:
    codes = {"algorithm": ALGORITHMS.index(algorithm), "source": SOURCES.index("gpu-early")}
    processes = [operations([100 * rank], [500 + rank], rank=rank, **codes) for rank in range(3)]
    table, waits = matched(processes, [3])
    assert table["last_end_ns"].tolist() == [502]
    assert table["last_start_ns"].tolist() == [200]
    assert table["ranks_timed"].tolist() == [3]
    for wait in waits:
        for name in ("wait_ns", "wire_ns", "relative_wait_ns"):
            assert wait[name].tolist() == [NONE]


@pytest.mark.parametrize("source", ["gpu-partial", "proxy", "host", "enqueue", "none"])
def test_times_that_do_not_compare_are_left_out(source: str) -> None:
    processes = [operations([100 * rank], [500], rank=rank) for rank in range(3)]
    processes[2]["source"][:] = SOURCES.index(source)
    table, waits = matched(processes, [3])
    assert table["ranks_seen"].tolist() == [3]
    assert table["ranks_timed"].tolist() == [2]
    assert table["last_start_ns"].tolist() == [100]
    assert [wait["wait_ns"].tolist() for wait in waits] == [[100], [0], [NONE]]


def test_wait_is_never_longer_than_the_operation() -> None:
    processes = [operations([0], [100], rank=0), operations([130], [180], rank=1)]
    _, waits = matched(processes, [2])
    assert [wait["wait_ns"].tolist() for wait in waits] == [[100], [0]]
    assert [wait["wire_ns"].tolist() for wait in waits] == [[0], [50]]


def test_a_missing_rank_shows() -> None:
    processes = [operations([100 * rank], [500], rank=rank) for rank in range(3)]
    table, waits = matched(processes, [4])
    assert table["ranks_seen"].tolist() == [3]
    assert table["ranks_expected"].tolist() == [4]
    assert waits[0]["wait_ns"].tolist() == [200]  # a lower bound


def test_one_rank_alone_waits_for_nobody_that_is_known() -> None:
    table, waits = matched([operations([5], [9], rank=0)], [2])
    assert table["skew_ns"].tolist() == table["last_communicator_rank"].tolist() == [NONE]
    assert table["last_start_ns"].tolist() == [5]
    assert waits[0]["wait_ns"].tolist() == waits[0]["relative_wait_ns"].tolist() == [NONE]


# ---- who belongs together ----
def test_ranks_that_disagree() -> None:
    processes = [operations([10, 20], [15, 25], rank=rank) for rank in range(3)]
    processes[0]["size_bytes"][1] = 77
    table, waits = matched(processes, [3])
    assert table["mismatch"].tolist() == [0, 1]
    assert table["size_bytes"].tolist() == [1024, 1024]
    assert waits[1]["wait_ns"].tolist() == [0, NONE]
    for name in ("function", "datatype"):
        processes = [operations([10], [15], rank=rank) for rank in range(3)]
        processes[1][name][:] = 2
        table, _ = matched(processes, [3])
        assert table["mismatch"].tolist() == [1]
        assert table["function"].tolist() == [0]
        processes[1][name][:] = NONE  # not known is no mismatch
        assert matched(processes, [3])[0]["mismatch"].tolist() == [0]


def test_majorities() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        ranks = int(rng.integers(3, 12))
        sizes = np.full(ranks, 64)
        odd = rng.permutation(ranks)[: int(rng.integers(0, (ranks + 1) // 2))]
        sizes[odd] = rng.integers(1, 4, len(odd))
        processes = [
            operations([1], [2], rank=rank, size_bytes=int(sizes[rank])) for rank in range(ranks)
        ]
        table, _ = matched(processes, [ranks])
        assert table["size_bytes"].tolist() == [64]
        assert table["mismatch"].tolist() == [int(len(odd) > 0)]


def test_sends_and_receives() -> None:
    """Rank 0 sends twice to 1 and once to itself, rank 1 sends once to 0."""
    send, recv = FORMS.index("send"), FORMS.index("recv")
    early = {"source": SOURCES.index("gpu-early")}
    zero = operations(
        [10, 20, 30, 40, 50],
        [11, 21, 31, 41, 51],
        rank=0,
        form=[send, recv, send, send, recv],
        function=[5, 6, 5, 5, 6],
        peer=[1, 1, 1, 0, 0],
        call_order=[0, 0, 1, 0, 0],
        **early,
    )
    one = operations(
        [12, 22, 32],
        [13, 23, 33],
        rank=1,
        form=[recv, send, recv],
        function=[6, 5, 6],
        peer=[0, 0, 0],
        call_order=[0, 0, 1],
        **early,
    )
    table, waits = matched([zero, one], [2])
    pairs = zip(table["source_rank"].tolist(), table["destination_rank"].tolist(), strict=True)
    assert list(zip(pairs, table["call_order"].tolist(), strict=True)) == [
        ((0, 0), 0),
        ((0, 1), 0),
        ((0, 1), 1),
        ((1, 0), 0),
    ]
    assert table["ranks_seen"].tolist() == table["ranks_expected"].tolist() == [2] * 4
    assert set(table["function"].tolist()) == {5}
    assert set(table["form"].tolist()) == {send}
    assert table["mismatch"].tolist() == [0] * 4
    assert table["skew_ns"].tolist() == [10, 2, 2, 2]
    assert waits[0]["instance"].tolist() == [1, 3, 2, 0, 0]
    assert waits[1]["instance"].tolist() == [1, 3, 2]
    assert waits[0]["wait_ns"].tolist() == [NONE] * 5


def test_replays_go_by_their_sequence() -> None:
    """Sequence numbers with gaps, another function's beside them, and calls apart."""
    processes = []
    for rank in range(2):
        columns = operations([10, 20, 30, 40], [15, 25, 35, 45], rank=rank)
        columns["replay"][1:] = 1
        columns["call_order"][1:] = NONE
        columns["sequence"][:] = [7, 8, 12, 8]
        columns["function"][3] = 1
        processes.append(columns)
    table, waits = matched(processes, [2])
    assert table["call_order"].tolist() == [0, 8, 12, 8]
    assert table["function"].tolist() == [0, 0, 0, 1]
    assert waits[1]["instance"].tolist() == [0, 1, 2, 3]


def test_several_ranks_in_one_process_and_several_communicators() -> None:
    one = operations(
        [10, 30, 11, 31, 12],
        [20, 40, 20, 40, 20],
        rank=[0, 0, 1, 1, 0],
        communicator=[0, 0, 0, 0, 1],
        call_order=[0, 1, 0, 1, 0],
    )
    two = operations(
        [15, 35, 18], [20, 40, 20], rank=[2, 2, 1], communicator=[0, 0, 1], call_order=[0, 1, 0]
    )
    table, waits = matched([one, two], [3, 2])
    assert table["communicator"].tolist() == [0, 0, 1]
    assert table["ranks_seen"].tolist() == table["ranks_expected"].tolist() == [3, 3, 2]
    assert table["last_communicator_rank"].tolist() == [2, 2, 1]
    assert waits[0]["wait_ns"].tolist() == [5, 5, 4, 4, 6]


def test_operations_without_a_number_belong_to_nothing() -> None:
    columns = operations([10, 20], [15, 25], rank=0, call_order=[0, NONE])
    columns["communicator"][0] = NONE
    table, waits = matched([columns], [1])
    assert len(table["communicator"]) == 0
    assert waits[0]["instance"].tolist() == [NONE, NONE]
    table, waits = matched([operations([], [], rank=0)], [1])
    assert len(table["communicator"]) == len(waits[0]["wait_ns"]) == 0


def test_a_number_far_away_takes_no_memory() -> None:
    columns = operations([10, 20], [15, 25], rank=0, call_order=[0, 1 << 60])
    table, waits = matched([columns], [1])
    assert len(table["communicator"]) == 1
    assert waits[0]["instance"].tolist() == [0, NONE]


# ---- how certain ----
def test_the_last_is_named_only_where_it_is_certain() -> None:
    clocks = tied(100_000)
    at = [1_000_000, 2_000_000]
    here = operations(at, [t + 900_000 for t in at], rank=0, node=0)
    there = operations([at[0] + 50_000, at[1] + 300_000], [1_900_000, 2_900_000], rank=1, node=1)
    table, _ = matched([here, there], [2], clocks)
    assert table["last_communicator_rank"].tolist() == [NONE, 1]
    assert table["skew_ns"].tolist() == [50_000, 300_000]
    assert (table["error_ns"] >= 100_000).all()
    assert (table["error_ns"] < 130_000).all()
    # The mapping of GPU times is in the clocks' error, unless a node has several GPUs.
    assert (
        matched([here, there], [2], clocks, [9, 9])[0]["error_ns"].tolist()
        == table["error_ns"].tolist()
    )
    third = operations([0], [9], rank=2, node=1, global_rank=2)
    more = matched([here, there, third], [3], clocks, [9, 9, 9])[0]["error_ns"]
    assert (more - table["error_ns"]).tolist() == [18, 18]
    # Within a node only the mapping of GPU times counts, both ranks'.
    there["node"][:] = 0
    table, _ = matched([here, there], [2], clocks, [30_000, 10_000])
    assert table["error_ns"].tolist() == [60_000, 60_000]
    assert table["last_communicator_rank"].tolist() == [NONE, 1]


def test_nothing_is_compared_where_clocks_are_not_tied() -> None:
    clocks = solve([0, 0])
    processes = [operations([10], [20], rank=rank, node=rank) for rank in range(2)]
    table, waits = matched(processes, [2], clocks)
    for name in ("error_ns", "skew_ns", "last_communicator_rank"):
        assert table[name].tolist() == [NONE]
    assert waits[0]["wait_ns"].tolist() == [NONE]
    assert waits[0]["relative_wait_ns"].tolist() == [0]  # needs no clock


def test_waits_against_a_plain_reckoning() -> None:
    rng = np.random.default_rng(1)
    ranks, calls = 8, 500
    starts = rng.integers(0, 1000, (calls, ranks)) + np.arange(calls)[:, None] * 10_000
    ends = starts.max(axis=1, keepdims=True) + rng.integers(100, 200, (calls, ranks))
    there = rng.random((calls, ranks)) > 0.05
    processes = [
        operations(
            starts[there[:, rank], rank],
            ends[there[:, rank], rank],
            rank=rank,
            call_order=np.flatnonzero(there[:, rank]),
        )
        for rank in range(ranks)
    ]
    table, waits = matched(processes, [ranks])
    for rank, wait in enumerate(waits):
        for place, call in enumerate(np.flatnonzero(there[:, rank]).tolist()):
            arrived = starts[call][there[call]]
            assert wait["wait_ns"][place] == arrived.max() - starts[call, rank]
            assert wait["wire_ns"][place] == ends[call, rank] - arrived.max()
            durations = (ends[call] - starts[call])[there[call]]
            own = ends[call, rank] - starts[call, rank]
            assert wait["relative_wait_ns"][place] == own - durations.min()
            assert table["ranks_seen"][wait["instance"][place]] == len(arrived)
