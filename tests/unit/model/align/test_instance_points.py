"""Clocks of many nodes: bounds by instance say the same as bounds by pairs of nodes."""

import numpy as np
import numpy.typing as npt
import pytest

from ncclscope.model import schema
from ncclscope.model.align import bounds, host_clocks
from ncclscope.model.align.bounds import Bounds, CollectiveBounds
from ncclscope.model.align.host_clocks import solve
from ncclscope.model.align.instance_points import InstancePoints, InstanceTimes, points_of
from ncclscope.model.align.pair_points import MOST_NODES, PairPoints
from ncclscope.model.align.stretch import Slopes, Stretch
from ncclscope.model.streams import StreamCounter, rules_of

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
RULES = rules_of(["AllReduce"], ["RING"])
US, S = 1e3, 1e9
SPAN_NS = 60 * S
MANY = 130
assert MANY > MOST_NODES


def job(rng: np.random.Generator, nodes: int, instances: int) -> tuple[Floats, Floats]:
    """Starts and ends in true time, instance x node: the wire takes 30 µs after the last start."""
    at = np.sort(rng.uniform(0, SPAN_NS, instances))[:, None]
    start = at + rng.exponential(100 * US, (instances, nodes))
    end = start.max(axis=1, keepdims=True) + 30 * US * (1 + rng.exponential(0.3, start.shape))
    return start, end


def both_forms(
    start: Floats, end: Floats, there: npt.NDArray[np.bool_]
) -> tuple[InstancePoints, PairPoints]:
    """The same bounds by instance and by pair; `there`: which nodes took part."""
    instance, node = np.nonzero(there)
    points = points_of(
        InstanceTimes(instance, node, start[there]), InstanceTimes(instance, node, end[there])
    )
    k, a, b = np.nonzero(there[:, :, None] & there[:, None, :])
    k, a, b = k[a != b], a[a != b], b[a != b]
    order = np.argsort(end[k, a], kind="stable")
    k, a, b = k[order], a[order], b[order]
    return points, PairPoints(a, b, end[k, a], start[k, b], without_drift=True)


@pytest.mark.parametrize("nodes", [2, 7, 24])
def test_bands_are_equal_to_those_of_pairs(nodes: int) -> None:
    """Of instances that lie in one window: pairs have windows of their own."""
    rng = np.random.default_rng(nodes)
    instances = 320
    start, end = job(rng, nodes, instances)
    stretch = Stretch(0.0, SPAN_NS)
    centre = np.repeat(stretch.centre, instances // 32)[:, None]
    shift = centre - start.mean(axis=1, keepdims=True) + rng.uniform(-3e8, 3e8, (instances, 1))
    start, end = start + shift, end + shift
    offset = rng.uniform(-1e6, 1e6, nodes)
    there = rng.random(start.shape) < 0.7
    points, pairs = both_forms(start - offset, end - offset, there)
    slope, error = rng.uniform(-1e-6, 1e-6, nodes), rng.uniform(1e-5, 2e-5, nodes)
    slopes = Slopes(slope, error, 2000.0)
    own, others = points.limits(stretch, slopes).bands(), pairs.limits(stretch, slopes).bands()
    assert own is not None
    assert others is not None
    for band, other in zip(own, others, strict=True):
        np.testing.assert_allclose(band, other, atol=0.01)


def test_bounds_that_contradict_each_other_have_no_bands() -> None:
    start = np.array([[1000.0, 9000.0], [5000.0, 1000.0]])
    end = np.array([[2000.0, 9500.0], [5500.0, 2000.0]])
    points, pairs = both_forms(start, end, np.ones((2, 2), bool))
    slopes = Slopes(np.zeros(2), np.zeros(2), 0.0)
    stretch = Stretch(0.0, 1e6)
    assert points.limits(stretch, slopes).bands() is None
    assert pairs.limits(stretch, slopes).bands() is None


# ---- the clocks of many nodes ----
def local(true_ns: Floats, node: int, offset_ns: Ints, drift: Floats) -> Ints:
    return np.rint(true_ns * (1 + drift[node])).astype(np.int64) - offset_ns[node]


def collectives_of(
    start: Floats, end: Floats, offset_ns: Ints, drift: Floats, group: int
) -> CollectiveBounds:
    """Collectives of communicators of `group` nodes each."""
    instances, nodes = start.shape
    processes = []
    for node in range(nodes):
        columns = schema.empty(schema.OPERATIONS, instances)
        constants = {"form": 0, "function": 0, "algorithm": 0, "source": 0, "replay": 0}
        constants |= {"symmetric": 0, "communicator": node // group, "node": node, "rank": node}
        for name, value in constants.items():
            columns[name][:] = value
        columns["call_order"][:] = np.arange(instances)
        columns["start_ns"][:] = local(start[:, node], node, offset_ns, drift)
        columns["end_ns"][:] = local(end[:, node], node, offset_ns, drift)
        processes.append(columns)
    counter = StreamCounter()
    for columns in processes:
        counter.add(columns)
    collectives = CollectiveBounds(counter.streams(), counter.nodes(), RULES)
    for columns in processes:
        collectives.add(columns)
    return collectives


def clocks_of(rng: np.random.Generator, nodes: int) -> tuple[Ints, Floats]:
    offset_ns = rng.uniform(-5 * 3600e9, 5 * 3600e9, nodes).astype(np.int64)
    return offset_ns, rng.uniform(-50e-6, 50e-6, nodes)


def test_clocks_are_as_good_as_by_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    nodes = 12
    start, end = job(rng, nodes, 600)
    offset_ns, drift = clocks_of(rng, nodes)
    by_pairs = solve([0] * nodes, collectives=collectives_of(start, end, offset_ns, drift, nodes))
    for module in (bounds, host_clocks):
        monkeypatch.setattr(module, "MOST_NODES", 1)
    clocks = solve([0] * nodes, collectives=collectives_of(start, end, offset_ns, drift, nodes))
    times = np.linspace(0, SPAN_NS, 100)
    for node in range(1, nodes):
        own = local(times, node, offset_ns, drift)
        error, other = clocks.error_at(node, own), by_pairs.error_at(node, own)
        np.testing.assert_allclose(error, other, rtol=0.05)
        apart = clocks.to_reference(node, own) - by_pairs.to_reference(node, own)
        assert np.abs(apart).max() <= 0.05 * error.min()


def test_few_nodes_of_a_long_job_keep_a_sample_of_instances(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Memory does not grow with the job, and the truth stays inside the bar."""
    rng = np.random.default_rng(5)
    nodes, instances = 4, 6_000
    start, end = job(rng, nodes, instances)
    offset_ns, drift = clocks_of(rng, nodes)
    all_cells = len(collectives_of(start, end, offset_ns, drift, nodes).cells()[0])
    assert all_cells == nodes * instances
    monkeypatch.setattr(bounds, "_MOST_CELLS", nodes * instances // 3)
    monkeypatch.setattr(bounds, "_MOST_INSTANCES", 100)
    sampled = collectives_of(start, end, offset_ns, drift, nodes)
    assert len(sampled.cells()[0]) == nodes * instances // 3
    clocks = solve([0] * nodes, collectives=sampled)
    times = np.linspace(0, SPAN_NS, 100)
    expected = local(times, 0, offset_ns, drift)
    for node in range(1, nodes):
        own = local(times, node, offset_ns, drift)
        off = np.abs(clocks.to_reference(node, own) - expected)
        assert (off <= clocks.error_at(node, own)).all()


def test_a_short_stream_beside_long_ones_keeps_its_instances(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(6)
    start, end = job(rng, 4, 60)
    monkeypatch.setattr(bounds, "_MOST_CELLS", 1)
    monkeypatch.setattr(bounds, "_MOST_INSTANCES", 50)
    offset_ns, drift = clocks_of(rng, 4)
    assert len(collectives_of(start, end, offset_ns, drift, 2).cells()[0]) == 4 * 60


def test_many_nodes_have_the_truth_inside_their_bar() -> None:
    rng = np.random.default_rng(1)
    start, end = job(rng, MANY, 500)
    offset_ns, drift = clocks_of(rng, MANY)
    clocks = solve([0] * MANY, collectives=collectives_of(start, end, offset_ns, drift, MANY))
    times = np.linspace(0, SPAN_NS, 100)
    expected = local(times, 0, offset_ns, drift)
    for node in range(1, MANY):
        own = local(times, node, offset_ns, drift)
        error = clocks.error_at(node, own)
        assert (np.abs(clocks.to_reference(node, own) - expected) <= error + 2).all()
        assert np.median(error) <= 200 * US  # each node was last some four times
    assert np.isfinite(clocks.error_among(np.arange(MANY), expected)).all()


def test_many_nodes_that_nothing_ties_are_marked() -> None:
    rng = np.random.default_rng(2)
    start, end = job(rng, MANY, 60)
    offset_ns, drift = clocks_of(rng, MANY)
    collectives = collectives_of(start, end, offset_ns, drift, MANY // 2)
    clocks = solve(offset_ns.tolist(), collectives=collectives)
    assert [clock.cluster for clock in clocks.nodes] == [0] * (MANY // 2) + [1] * (MANY // 2)
    assert not clocks.nodes[-1].tied
    times = np.linspace(0, SPAN_NS, 10)
    last = local(times, MANY - 1, offset_ns, drift)
    assert np.abs(clocks.to_reference(MANY - 1, last) - times + offset_ns[0]).max() < S


def test_proxy_steps_tie_many_nodes() -> None:
    """Around a ring, both ways: errors add up along the way to the first node."""
    rng = np.random.default_rng(3)
    offset_ns, drift = clocks_of(rng, MANY)
    parts = []
    for a in range(MANY):
        for b in ((a + 1) % MANY, (a - 1) % MANY):
            at = np.sort(rng.uniform(0, SPAN_NS, 200))
            arrived = at + 15 * US * (1 + rng.exponential(0.5, len(at)))
            nodes = np.full(len(at), b), np.full(len(at), a)
            times = local(arrived, b, offset_ns, drift), local(at, a, offset_ns, drift)
            parts.append(Bounds(*nodes, *times))
    names = ("node_a", "node_b", "end_ns", "start_ns")
    steps = Bounds(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
    clocks = solve([0] * MANY, steps)
    times = np.linspace(0, SPAN_NS, 50)
    expected = local(times, 0, offset_ns, drift)
    for node in (1, MANY // 2):
        own = local(times, node, offset_ns, drift)
        error = clocks.error_at(node, own)
        assert (np.abs(clocks.to_reference(node, own) - expected) <= error + 2).all()
        assert np.median(error) <= 6 * 15 * US * min(node, MANY - node)
