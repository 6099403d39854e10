"""One clock: the truth lies inside the bar, and the bar is as narrow as the network allows."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from ncclscope.model import schema
from ncclscope.model.align import bounds as align_bounds
from ncclscope.model.align.bounds import Bounds, CollectiveBounds, ProxyStepTimes, bounds_of_steps
from ncclscope.model.align.host_clocks import Cluster, HostClocks, solve
from ncclscope.model.align.offsets import ClockOffsets
from ncclscope.model.streams import StreamCounter, rules_of
from tests.support.exhaustive import sample

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
FUNCTIONS = ["AllReduce", "Broadcast", "Reduce", "Send", "Recv"]
ALGORITHMS = ["RING", "TREE", "PAT"]
RULES = rules_of(FUNCTIONS, ALGORITHMS)
US, MS, S = 1e3, 1e6, 1e9


@dataclass
class Truth:
    """Nodes' true clocks: local = true time * (1 + drift) - offset, plus what wanders."""

    offset_ns: Ints
    drift: Floats
    wander: Callable[[int, Floats], Floats] = field(default=lambda node, t: np.zeros(len(t)))

    def local(self, node: int, true_ns: Floats) -> Ints:
        change = true_ns * self.drift[node] + self.wander(node, true_ns)
        return np.rint(true_ns + change).astype(np.int64) - self.offset_ns[node]


@dataclass
class Job:
    """Starts and ends in true time, instance x node; -1 where a node took no part."""

    start: Floats
    end: Floats
    wire_ns: float


def truth_of(rng: np.random.Generator, nodes: int, hours: float = 5, ppm: float = 100) -> Truth:
    offset = rng.uniform(-hours * 3600e9, hours * 3600e9, nodes).astype(np.int64)
    drift = rng.choice([-1, 1], nodes) * rng.uniform(10, ppm, nodes) * 1e-6
    return Truth(offset, drift)


def ring_job(
    rng: np.random.Generator,
    nodes: int,
    instances: int,
    span_ns: float,
    wire_ns: float,
    late_ns: float = 200 * US,
    jitter: float = 0.5,
    straggler_ns: float = 0,
) -> Job:
    """Everybody arrives a bit late at random; from the last arrival the wire takes its time."""
    at = np.sort(rng.uniform(0, span_ns, instances))[:, None]
    start = at + rng.exponential(late_ns, (instances, nodes))
    start[:, -1] += straggler_ns
    last = start.max(axis=1, keepdims=True)
    end = last + wire_ns * (1 + rng.exponential(jitter, (instances, nodes)))
    return Job(start, end, wire_ns)


def columns_of(
    truth: Truth,
    job: Job,
    node: int,
    shift_ns: float = 0,
    rank: int | None = None,
    communicator: int = 0,
) -> dict[str, npt.NDArray[np.generic]]:
    there = np.flatnonzero(job.start[:, node] >= 0)
    columns = schema.empty(schema.OPERATIONS, len(there))
    constants = {"form": 0, "function": 0, "algorithm": 0, "source": 0, "replay": 0, "symmetric": 0}
    constants |= {
        "communicator": communicator,
        "node": node,
        "rank": node if rank is None else rank,
    }
    for name, value in constants.items():
        columns[name][:] = value
    columns["call_order"][:] = there
    for name, times in (("start_ns", job.start), ("end_ns", job.end)):
        columns[name][:] = truth.local(node, times[there, node] + shift_ns)
    columns["duration_ns"][:] = columns["end_ns"] - columns["start_ns"]
    return columns


def collectives_of(
    processes: list[dict[str, npt.NDArray[np.generic]]], width_ns: int = 0
) -> CollectiveBounds:
    counter = StreamCounter()
    for columns in processes:
        counter.add(columns)
    collectives = CollectiveBounds(counter.streams(), counter.nodes(), RULES)
    for columns in processes:
        collectives.add(columns, width_ns)
    return collectives


@dataclass
class Outcome:
    inside: Floats  # share of times at which the truth lies inside the bar, by node
    bar: Floats  # time x node


def outcome(clocks: HostClocks, truth: Truth, times: Floats) -> Outcome:
    """Compares at true times: node n's time, brought to the reference, against node 0's."""
    expected = truth.local(0, times)
    nodes = range(1, len(truth.drift))
    local = [truth.local(node, times) for node in nodes]
    bar = np.array([clocks.error_at(n, t) for n, t in zip(nodes, local, strict=True)])
    found = np.array([clocks.to_reference(n, t) for n, t in zip(nodes, local, strict=True)])
    inside = np.abs(found - expected) <= bar + 2
    return Outcome(inside.mean(axis=1), bar.T)


def solved(
    truth: Truth, job: Job, width_ns: int = 0, rng: np.random.Generator | None = None
) -> HostClocks:
    nodes = job.start.shape[1]
    shifts = rng.uniform(-width_ns, width_ns, nodes) if rng else np.zeros(nodes)
    processes = [columns_of(truth, job, node, shifts[node]) for node in range(nodes)]
    return solve([0] * nodes, collectives=collectives_of(processes, width_ns))


# ---- everybody meets everybody ----
@pytest.mark.parametrize(("nodes", "width_ns"), sample([*product([2, 3, 4, 8, 16], [0, 6_000])], 3))
def test_the_bar_holds_the_truth_and_is_one_wire_time(nodes: int, width_ns: int) -> None:
    inside, ratio = [], []
    for seed in sample(range(4), 2):
        rng = np.random.default_rng(seed)
        span_ns = rng.choice([5, 60, 600, 3600]) * S
        truth = truth_of(rng, nodes)
        job = ring_job(rng, nodes, 2500, span_ns, rng.choice([10, 30, 100]) * US)
        clocks = solved(truth, job, width_ns, rng)
        found = outcome(clocks, truth, np.linspace(0, span_ns, 400))
        inside.append(found.inside)
        ratio.append((found.bar - 2 * width_ns) / job.wire_ns)
    ratios = np.concatenate([np.ravel(part) for part in ratio])
    assert np.min(inside) >= 0.99
    assert np.median(ratios) <= 1.05
    assert ratios.max() <= 1.2  # at the very ends too


def possible_ns(job: Job) -> Floats:
    """By node but the first half of the least way there and back that occurred: nobody can know
    its clock better, not even with the drift known.
    """
    nodes = range(1, job.start.shape[1])
    there = [(job.end[:, 0] - job.start[:, node]).min() for node in nodes]
    back = [(job.end[:, node] - job.start[:, 0]).min() for node in nodes]
    return (np.array(there) + np.array(back)) / 2


FEW = [(2, 60, 1.3), (2, 100, 1.25), (4, 200, 1.2), (8, 500, 1.2), (16, 1000, 1.2), (16, 300, 2.5)]


@pytest.mark.parametrize(("job_size", "width_ns"), sample([*product(FEW, [0, 6_000])], 5))
def test_few_operations(job_size: tuple[int, int, float], width_ns: int) -> None:
    """Nearly as good as possible once each node was last some ten times in each direction; below
    that wider, at the ends of the capture, and still true.
    """
    nodes, instances, most = job_size
    for seed in sample(range(4), 2):
        rng = np.random.default_rng(100 + seed)
        truth = truth_of(rng, nodes)
        span_ns = [5, 60, 600, 3600][seed] * S
        job = ring_job(rng, nodes, instances, span_ns, [10, 30, 100, 30][seed] * US)
        clocks = solved(truth, job, width_ns, rng)
        found = outcome(clocks, truth, np.linspace(job.start.min(), job.end.max(), 200))
        assert found.inside.min() >= 0.99
        ratio = (found.bar - 2 * width_ns) / possible_ns(job)
        assert np.median(ratio) <= 1.1
        assert ratio.max() <= most
        assert ratio.min() >= 0.99  # better than possible would be a lie


LATE_NS = 2 * MS


def _late_at_first_then_another(share: Floats, nodes: int) -> Floats:
    late = np.zeros((len(share), nodes))
    late[share < 0.5, 0] = late[share >= 0.5, -1] = LATE_NS
    return late


def _late_ever_less_another_ever_more(share: Floats, nodes: int) -> Floats:
    late = np.zeros((len(share), nodes))
    late[:, 0], late[:, -1] = LATE_NS * (1 - 2 * share), LATE_NS * (2 * share - 1)
    return np.maximum(late, 0)


def _late_in_turns(share: Floats, nodes: int) -> Floats:
    late = np.zeros((len(share), nodes))
    late[np.arange(len(share)), (share * 8).astype(int) % nodes] = LATE_NS
    return late


CHANGES = (_late_at_first_then_another, _late_ever_less_another_ever_more, _late_in_turns)


@pytest.mark.parametrize(("nodes", "late"), sample([*product([2, 4, 8], CHANGES)], 2))
def test_who_is_late_changes(nodes: int, late: Callable[[Floats, int], Floats]) -> None:
    """A rank that gets late looks like a clock that runs slow: the bar must not follow it."""
    inside = []
    for seed in sample(range(3), 2):
        rng = np.random.default_rng(seed)
        span_ns, wire_ns = rng.choice([2, 20, 200]) * S, rng.choice([10, 30, 100]) * US
        truth = truth_of(rng, nodes)
        job = ring_job(rng, nodes, int(rng.choice([100, 400])), span_ns, wire_ns)
        way = job.end - job.start.max(axis=1, keepdims=True)
        job.start += late(np.minimum(job.start[:, 0] / span_ns, 0.999), nodes)
        job.end = job.start.max(axis=1, keepdims=True) + way
        times = np.linspace(job.start.min(), job.end.max(), 200)
        inside.append(outcome(solved(truth, job), truth, times).inside)
    assert np.mean(inside) >= 0.99
    assert np.min(inside) >= 0.95


def test_a_clock_that_bends_in_a_short_run() -> None:
    """A daemon slews by some ppm for a second: too short to see, and still inside."""
    inside = []
    for seed in sample(range(8), 2):
        rng = np.random.default_rng(seed)
        truth = truth_of(rng, 4)
        truth.wander = lambda node, t: np.maximum(t - 0.8 * S, 0) * node * 5e-6
        job = ring_job(rng, 4, 400, 1.9 * S, 30 * US)
        inside.append(outcome(solved(truth, job), truth, np.linspace(0, 1.9 * S, 200)).inside)
    assert np.mean(inside) >= 0.99


@pytest.mark.parametrize("ppm", [10, 100])
def test_drift_is_followed_over_hours(ppm: float) -> None:
    rng = np.random.default_rng(1)
    truth = truth_of(rng, 4, ppm=10)
    truth.drift[1:] = np.array([ppm, -ppm, ppm]) * 1e-6  # 36 to 360 ms an hour
    job = ring_job(rng, 4, 20_000, 6 * 3600 * S, 25 * US)
    found = outcome(solved(truth, job), truth, np.linspace(0, 6 * 3600 * S, 500))
    assert found.inside.min() == 1
    assert np.quantile(found.bar, 0.99) <= 1.2 * job.wire_ns


def test_drift_within_a_bin_does_not_choose_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand communicators leave each 16 bins: of an hour, 225 s a bin. Clocks of 100 ppm part
    by 45 ms in that time, where a message takes 25 us. While drift is in the times, the bound at an
    end of the bin seems to be the tightest one, however long its message took.
    """
    monkeypatch.setattr(align_bounds, "_MOST_BINS", align_bounds._FEWEST_BINS)
    for seed in range(2):
        rng = np.random.default_rng(seed)
        truth = truth_of(rng, 3)
        truth.drift[:] = np.array([-100, 100, -100]) * 1e-6
        job = ring_job(rng, 3, 2000, 3600 * S, 25 * US)
        found = outcome(solved(truth, job), truth, np.linspace(0, 3600 * S, 300))
        assert found.inside.min() == 1
        assert np.median(found.bar / possible_ns(job)) <= 1.5  # 1.2; with the drift left in 7 to 24


def test_a_rate_that_changes_is_followed() -> None:
    rng = np.random.default_rng(2)

    def slewed(node: int, t: Floats) -> Floats:
        turns = np.array([0, 200, 350, 600]) * S
        shift = np.array([0, 3e-6, -4e-6, 1e-6]) * node
        return np.interp(t, turns, np.cumsum(shift * np.diff(turns, prepend=0)))

    truth = truth_of(rng, 4)
    truth.wander = slewed
    job = ring_job(rng, 4, 40_000, 600 * S, 25 * US)
    found = outcome(solved(truth, job), truth, np.linspace(0, 600 * S, 1000))
    assert found.inside.mean() >= 0.99
    assert np.median(found.bar) <= 1.2 * job.wire_ns


def test_a_rate_that_wanders_all_the_time_is_followed() -> None:
    rng = np.random.default_rng(3)
    truth = truth_of(rng, 3)
    truth.wander = lambda node, t: node * 300 * US * np.sin(t / (40 * S) + node)
    job = ring_job(rng, 3, 40_000, 600 * S, 25 * US)
    found = outcome(solved(truth, job), truth, np.linspace(0, 600 * S, 1000))
    assert found.inside.mean() >= 0.99
    assert np.median(found.bar) <= 1.5 * job.wire_ns


def test_clocks_years_apart() -> None:
    rng = np.random.default_rng(4)
    truth = truth_of(rng, 3)
    truth.offset_ns[:] = np.array([0, 9, -9]) * 365 * 86_400 * 10**9
    job = ring_job(rng, 3, 500, 30 * S, 20 * US)
    found = outcome(solved(truth, job), truth, np.linspace(0, 30 * S, 100))
    assert found.inside.min() == 1
    assert np.median(found.bar) <= 1.2 * job.wire_ns


def test_a_constant_straggler_makes_the_bar_wider() -> None:
    rng = np.random.default_rng(5)
    truth = truth_of(rng, 4)
    job = ring_job(rng, 4, 2000, 60 * S, 25 * US, straggler_ns=20 * MS)
    found = outcome(solved(truth, job), truth, np.linspace(0, 60 * S, 300))
    assert found.inside.min() == 1
    straggler = found.bar[:, 2]
    assert 9 * MS < np.median(straggler) < 12 * MS


def test_several_processes_of_a_node_count_as_one() -> None:
    """Each with a mapping of its own; their ranks tell more together than one of them."""
    rng = np.random.default_rng(6)
    truth, width_ns = truth_of(rng, 3), 10_000
    job = ring_job(rng, 6, 3000, 60 * S, 30 * US)
    processes = []
    for rank in range(6):
        one = Job(job.start[:, [rank] * 3], job.end[:, [rank] * 3], job.wire_ns)
        shift = rng.uniform(-width_ns, width_ns)
        processes.append(columns_of(truth, one, rank // 2, shift, rank))
    clocks = solve([0] * 3, collectives=collectives_of(processes, width_ns))
    found = outcome(clocks, truth, np.linspace(0, 60 * S, 300))
    assert found.inside.min() == 1
    assert np.median(found.bar) <= 1.2 * job.wire_ns + 2 * width_ns


# ---- holes ----
def test_long_pauses() -> None:
    rng = np.random.default_rng(7)
    truth = truth_of(rng, 4)
    job = ring_job(rng, 4, 3000, 600 * S, 25 * US)
    pause = (job.start[:, 0] > 150 * S) & (job.start[:, 0] < 450 * S)
    job.start[pause] = -1
    found = outcome(solved(truth, job), truth, np.linspace(0, 600 * S, 600))
    assert found.inside.min() == 1
    assert np.quantile(found.bar, 0.9) <= 2 * job.wire_ns


def test_a_node_that_comes_late_and_one_that_goes_early() -> None:
    rng = np.random.default_rng(8)
    truth = truth_of(rng, 4)
    job = ring_job(rng, 4, 4000, 100 * S, 25 * US)
    job.start[job.start[:, 0] < 60 * S, 3] = -1
    job.start[job.start[:, 0] > 30 * S, 2] = -1
    found = outcome(solved(truth, job), truth, np.linspace(0, 100 * S, 500))
    assert found.inside.min() == 1
    assert np.median(found.bar[400:, 2]) <= 1.2 * job.wire_ns
    assert np.median(found.bar[:100, 1]) <= 1.2 * job.wire_ns
    assert found.bar[0, 2] > found.bar[400, 2]  # nothing was known of it then


def test_one_instance_is_enough_for_a_start() -> None:
    rng = np.random.default_rng(9)
    truth = truth_of(rng, 3)
    job = ring_job(rng, 3, 1, 1 * S, 25 * US)
    times = np.linspace(job.start.min(), job.end.max(), 10)
    found = outcome(solved(truth, job), truth, times)
    assert found.inside.min() == 1
    assert np.isfinite(found.bar).all()


def test_nodes_that_nothing_ties_are_marked() -> None:
    """Nodes 2 and 3 talk to each other only; node 4 to nobody."""
    rng = np.random.default_rng(10)
    truth = truth_of(rng, 5)
    job = ring_job(rng, 5, 1000, 60 * S, 25 * US)
    processes = [columns_of(truth, job, node, communicator=node // 2) for node in range(4)]
    wall = [int(offset) for offset in truth.offset_ns]
    clocks = solve(wall, collectives=collectives_of(processes))
    assert [clock.tied for clock in clocks.nodes] == [True, True, False, False, False]
    times = np.linspace(0, 60 * S, 100)
    assert outcome(clocks, truth, times).inside[0] == 1
    for node in (2, 3, 4):
        local = truth.local(node, times)
        assert np.isinf(clocks.error_at(node, local)).all()
        assert np.abs(clocks.to_reference(node, local) - truth.local(0, times)).max() < 20 * MS
    two, three = (clocks.to_reference(node, truth.local(node, times)) for node in (2, 3))
    error = clocks.error_among(np.array([2, 3]), two)
    assert (np.abs(two - three) <= error + 2).all()
    assert np.median(error) <= 1.2 * job.wire_ns
    assert np.isinf(clocks.error_among(np.array([1, 2]), two)).all()


def test_without_any_bounds() -> None:
    clocks = solve([5, 7])
    assert clocks.to_reference(0, np.array([100])).tolist() == [100]
    assert clocks.to_reference(1, np.array([100])).tolist() == [102]
    assert clocks.error_at(0, np.array([100])).tolist() == [0]
    assert np.isinf(clocks.error_at(1, np.array([100]))).all()


# ---- differences of two nodes ----
def test_differences_are_known_better_than_sums() -> None:
    rng = np.random.default_rng(11)
    nodes = 6
    truth = truth_of(rng, nodes)
    job = ring_job(rng, nodes, 20_000, 60 * S, 25 * US)
    clocks = solved(truth, job)
    times = np.linspace(S, 59 * S, 300)
    mapped = [clocks.to_reference(node, truth.local(node, times)) for node in range(nodes)]
    for a in range(1, nodes):
        for b in range(a + 1, nodes):
            error = clocks.error_among(np.array([a, b]), mapped[0])
            assert (np.abs(mapped[a] - mapped[b]) <= error + 2).all()
            assert np.median(error) <= 1.6 * job.wire_ns
    everybody = clocks.error_among(np.arange(nodes), mapped[0])
    assert (everybody <= 2 * 1.2 * job.wire_ns).mean() > 0.95


def test_errors_of_two_nodes_add_up_unless_their_difference_is_known_better() -> None:
    """Of several nodes those two count that are known worst."""
    error = np.array([[1.0, 10.0, 20.0], [3.0, 30.0, 60.0]])
    known = np.array([[0.0, 5.0, 99.0], [5.0, 0.0, 25.0], [99.0, 25.0, 0.0]])
    for between, expected in (
        (None, [30, 60, 90]),
        (np.array([known, known], np.float32), [25, 25, 25]),
    ):
        offsets = ClockOffsets(np.array([0.0, 1000.0]), np.zeros((2, 3)), error, between, 0.0)
        cluster = Cluster(np.array([4, 6, 9]), 5_000, offsets)
        times = np.array([5_000, 5_500, 6_000])
        assert cluster.error_among(np.array([6, 9]), times).tolist() == expected
    assert cluster.error_among(np.array([4, 6]), times).tolist() == [5, 5, 5]
    assert cluster.error_among(np.array([4, 6, 9]), times).tolist() == [25, 44, 63]


def test_a_chain_of_communicators() -> None:
    """Node n talks to n - 1 and n + 1 only: errors add up along the way."""
    rng = np.random.default_rng(12)
    nodes = 5
    truth = truth_of(rng, nodes)
    processes = []
    for link in range(nodes - 1):
        job = ring_job(rng, nodes, 1500, 60 * S, 25 * US)
        job.end = job.start[:, [link, link + 1]].max(axis=1)[:, None] + job.wire_ns + 0 * job.end
        processes += [columns_of(truth, job, link + side, communicator=link) for side in (0, 1)]
    clocks = solve([0] * nodes, collectives=collectives_of(processes))
    found = outcome(clocks, truth, np.linspace(0, 60 * S, 200))
    assert found.inside.min() == 1
    expected = np.arange(1, nodes) * 25 * US
    assert (np.median(found.bar, axis=0) <= 1.2 * expected).all()


# ---- which operations count ----
def test_tree_and_early_and_partial_stamps_are_not_used() -> None:
    rng = np.random.default_rng(13)
    truth = truth_of(rng, 2)
    job = ring_job(rng, 2, 50, S, 25 * US)
    sources = ("gpu-partial", "gpu-early", "gpu-event-rough", "gpu-event-upper")
    changes = [("source", schema.SOURCES.index(source)) for source in sources]
    changes += [("algorithm", 1), ("algorithm", schema.NONE)]
    for name, value in [*changes, ("function", 3), ("symmetric", 1), ("form", 3)]:
        processes = [columns_of(truth, job, node) for node in range(2)]
        for columns in processes:
            columns[name][:] = value
        assert not solve([0, 0], collectives=collectives_of(processes)).nodes[1].tied, name


@pytest.mark.parametrize("function", [1, 2])
def test_broadcast_and_reduce_tie_to_the_root_only(function: int) -> None:
    rng = np.random.default_rng(14)
    nodes = 3
    truth = truth_of(rng, nodes)
    at = np.linspace(0, 60 * S, 3000)[:, None]
    start = at + rng.exponential(100 * US, (3000, nodes))
    roots = rng.integers(0, nodes, 3000)
    root_start = start[np.arange(3000), roots][:, None]
    wire_ns = 25 * US
    if function == 1:  # Broadcast: the root goes on, others wait for it
        end = np.maximum(start, root_start) + wire_ns
        end[np.arange(3000), roots] = root_start[:, 0] + 1 * US
    else:  # Reduce: the others go on, the root waits for all
        end = start + 1 * US
        end[np.arange(3000), roots] = start.max(axis=1) + wire_ns
    job = Job(start, end, wire_ns)
    for fixed in (False, True):
        processes = [columns_of(truth, job, node) for node in range(nodes)]
        for columns in processes:
            columns["function"][:] = function
            columns["root"][:] = 0 if fixed else roots
        if fixed:
            # Only one direction is bounded, and the other roots' ends break no bound.
            clocks = solve([0] * nodes, collectives=collectives_of(processes))
            assert not any(clock.tied for clock in clocks.nodes[1:])
            continue
        clocks = solve([0] * nodes, collectives=collectives_of(processes))
        found = outcome(clocks, truth, np.linspace(0, 60 * S, 300))
        assert found.inside.min() == 1
        assert np.median(found.bar) <= 1.2 * wire_ns


def test_wrong_bounds_widen_the_bar_and_break_nothing() -> None:
    rng = np.random.default_rng(15)
    truth = truth_of(rng, 4)
    job = ring_job(rng, 4, 5000, 60 * S, 25 * US)
    job.end[2500] -= 3 * MS  # stamps of an earlier work that nobody noticed
    found = outcome(solved(truth, job), truth, np.linspace(0, 60 * S, 600))
    assert np.isfinite(found.bar).all()
    assert found.inside.mean() >= 0.97
    assert np.median(found.bar) <= 1.5 * job.wire_ns


# ---- proxy steps ----
def steps_of(
    truth: Truth, sender: int, receiver: int, times: Floats, node: int, link: int = 0
) -> ProxyStepTimes:
    count = len(times)
    values = (link, sender, receiver, 0)
    constants = [np.full(count, value, np.int64) for value in values]
    number = np.arange(count)
    where = np.full(count, node, np.int64)
    return ProxyStepTimes(*constants, number // 8, number % 8, where, truth.local(node, times))


def join_steps(parts: list[ProxyStepTimes]) -> ProxyStepTimes:
    names = list(ProxyStepTimes.__dataclass_fields__)
    return ProxyStepTimes(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in names)
    )


@pytest.mark.parametrize("both_ways", [True, False])
def test_proxy_steps(both_ways: bool) -> None:
    """Around a ring one way, a pair is bounded by the whole round; both ways by one step."""
    rng = np.random.default_rng(16)
    nodes, wire_ns = 4, 15 * US
    truth = truth_of(rng, nodes)
    sends, receives = [], []
    links = [(node, (node + 1) % nodes) for node in range(nodes)]
    for a, b in links + ([(b, a) for a, b in links] if both_ways else []):
        at = np.sort(rng.uniform(0, 60 * S, 4000))
        sends.append(steps_of(truth, a, b, at, a))
        arrived = at + wire_ns * (1 + rng.exponential(0.5, len(at)))
        receives.append(steps_of(truth, a, b, arrived, b))
    order = rng.permutation(4000 * len(sends))
    shuffled = join_steps(sends)
    shuffled = ProxyStepTimes(
        *(getattr(shuffled, name)[order] for name in ProxyStepTimes.__dataclass_fields__)
    )
    bounds = bounds_of_steps(shuffled, join_steps(receives))
    assert len(bounds) == len(order)
    found = outcome(solve([0] * nodes, bounds), truth, np.linspace(0, 60 * S, 300))
    assert found.inside.min() == 1
    factor = np.array([1, 2, 1]) if both_ways else nodes / 2
    assert (np.median(found.bar, axis=0) <= 1.2 * factor * wire_ns).all()


def test_steps_that_are_not_known_once_on_both_sides_are_left_out() -> None:
    truth = Truth(np.zeros(2, np.int64), np.zeros(2))
    times = np.arange(10) * MS
    sends = steps_of(truth, 0, 1, times, 0)
    receives = steps_of(truth, 0, 1, times + 5, 1)
    receives.step[3] = 99
    twice = join_steps([sends, steps_of(truth, 0, 1, times[5:6], 0)])
    twice.order[-1], twice.step[-1] = sends.order[5], sends.step[5]
    found = bounds_of_steps(twice, receives)
    assert len(found) == 8
    assert set((found.end_ns - found.start_ns).tolist()) == {5}
    nothing = steps_of(truth, 0, 1, times[:0], 0)
    assert len(bounds_of_steps(nothing, nothing)) == 0


def test_collectives_and_steps_together() -> None:
    """A constant straggler hides from collectives; steps show it."""
    rng = np.random.default_rng(17)
    truth = truth_of(rng, 2)
    job = ring_job(rng, 2, 1000, 60 * S, 25 * US, straggler_ns=20 * MS)
    sends = []
    receives = []
    for a, b in ((0, 1), (1, 0)):
        at = np.sort(rng.uniform(0, 60 * S, 1000))
        sends.append(steps_of(truth, a, b, at, a))
        receives.append(steps_of(truth, a, b, at + 40 * US, b))
    bounds: Bounds = bounds_of_steps(join_steps(sends), join_steps(receives))
    collectives = collectives_of([columns_of(truth, job, node) for node in range(2)])
    found = outcome(solve([0, 0], bounds, collectives), truth, np.linspace(0, 60 * S, 300))
    assert found.inside.min() == 1
    assert np.median(found.bar) <= 1.2 * 40 * US
