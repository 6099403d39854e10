"""Simulated captures are whole, hold what was asked for, and keep to their own truth."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ncclscope.capture import dtypes, layout
from ncclscope.capture.dump_events import events_of
from ncclscope.capture.process import Process
from ncclscope.capture.segment import expand
from ncclscope.model.build import open_model
from tests.support.captures import undamaged_processes
from tests.support.writer import Straggler, SyntheticSpec, Truth, Work, synthetic
from tests.support.writer.physics import START_SPREAD_NS, STOP_SPREAD_NS

Slots = Any
_NOTICE_NS = 20_000  # the host knows of everything that soon


def slots_of(process: Process, kind: str) -> Slots:
    """All slots of one kind, in the order of their keys."""
    blocks = process.slots.blocks
    slots = process.slots.take(expand(blocks.row, blocks.count))
    return slots[slots["kind"] == layout.KINDS[kind]].view(dtypes.OURS.dtypes[kind])


def kinds_of(process: Process) -> dict[str, int]:
    """How many slots there are of each kind."""
    blocks = process.slots.blocks
    slots = process.slots.take(expand(blocks.row, blocks.count))
    return {
        dtypes.OURS.names[kind]: count for kind, count in Counter(slots["kind"].tolist()).items()
    }


def check_times(process: Process, rank: int, truth: Truth, comms: list[int]) -> None:
    """Stamps and host times of one rank's kernels against the truth."""
    spec = truth.spec
    kernels = slots_of(process, "KernelCh")
    kernels = kernels[np.isin(kernels["comm"], comms)].reshape(-1, spec.channels)
    own = truth.start_ns[rank] >= 0
    start_ns, end_ns = truth.start_ns[rank, own], truth.end_ns[rank, own]
    assert len(kernels) == len(start_ns)
    late_ns = kernels["gpu_start"][:, 0].astype(np.int64) - truth.gpus.at(rank, start_ns)
    assert -spec.gpu_step_ns < late_ns.min()
    assert late_ns.max() <= 0
    early_ns = truth.gpus.at(rank, end_ns) - kernels["gpu_stop"].max(axis=1).astype(np.int64)
    assert early_ns.min() >= 0
    assert early_ns.max() < spec.gpu_step_ns
    spread = np.ptp(kernels["gpu_start"].astype(np.int64), axis=1)
    assert spread.max() <= START_SPREAD_NS + spec.gpu_step_ns
    seen_ns = process.clock.to_ns(kernels["t_stop"].reshape(-1)).reshape(kernels.shape)
    noticed_ns = seen_ns - truth.host_ns(rank, end_ns)[:, None]
    assert spec.notice_ns[0] <= noticed_ns.min() <= noticed_ns.max() < _NOTICE_NS
    assert (kernels["t0"] < kernels["t_stop"]).all()
    assert (kernels["t_stop"] < kernels["t1"]).all()
    launches = slots_of(process, "KernelLaunch")
    launches = launches[np.isin(launches["comm"], comms)]
    launched_ns = process.clock.to_ns(launches["t0"])
    assert (launched_ns < truth.host_ns(rank, start_ns)).all()


def check_causes(truth: Truth) -> None:
    """Ring-like operations end after every member's start and the way between them."""
    spread_ns = max(START_SPREAD_NS, STOP_SPREAD_NS) + truth.spec.gpu_step_ns
    least = 1 << 62
    for number, layer in enumerate(truth.spec.layers):
        for comm in layer:
            members = list(truth.spec.members[comm])
            own = truth.layer == number
            start, end = truth.start_ns[members][:, own], truth.end_ns[members][:, own]
            assert (start >= 0).all()
            assert (start[:, 1:] > end[:, :-1]).all()
            least = min(least, int((end.min(axis=0) - start.max(axis=0)).min()))
    assert truth.one_way_ns + spread_ns == least


def check_stamps(processes: list[Process], truth: Truth) -> None:
    """The same from the stamps, for each channel: what an alignment may rely on."""
    spec, gpus = truth.spec, truth.gpus
    found = [slots_of(process, "KernelCh").reshape(-1, spec.channels) for process in processes]
    true_ns = {}
    for field in ("gpu_start", "gpu_stop"):
        stamps = np.array([kernels[field] for kernels in found]).astype(np.int64)
        shown_ns = stamps - gpus.offset_ns[:, None, None]
        drift = gpus.drift_ppm[:, None, None] * 1e-6
        true_ns[field] = shown_ns - np.rint((shown_ns - gpus.origin_ns) * drift).astype(np.int64)
    way_ns = true_ns["gpu_stop"].min(axis=0) - true_ns["gpu_start"].max(axis=0)
    assert truth.one_way_ns - 2 <= way_ns.min() <= truth.one_way_ns + 200


@pytest.mark.parametrize("version", [5, 7])
def test_a_world_of_eight(version: int, tmp_path: Path) -> None:
    spec = SyntheticSpec(
        processes=8, operations=3_000, ranks_per_node=4, version=version, seed=version
    )
    truth = synthetic(tmp_path / "capture", spec)
    check_causes(truth)
    processes = undamaged_processes(tmp_path / "capture")
    assert [process.rank for process in processes] == list(range(8))
    assert len({process.identity["boot_id"] for process in processes}) == 2
    check_stamps(processes, truth)
    for rank, process in enumerate(processes):
        kinds = kinds_of(process)
        assert kinds == dict.fromkeys(
            ("GroupApi", "CollApi", "KernelLaunch", "Group", "Coll", "CollExt"), 3000
        ) | {"KernelCh": 6_000}
        assert process.ended
        assert process.identity["simulation"] == "1"
        assert process.communicators[0].id == truth.comm_ids[0]
        assert process.communicators[0].nodes == 2
        check_times(process, rank, truth, [0])
        sequence = slots_of(process, "Coll")["seq"]
        assert np.array_equal(sequence, truth.seq)


def test_events_hang_together(tmp_path: Path) -> None:
    mix = (Work(), Work("SendRecv", 4_096, wire_ns=(10_000, 20_000)))
    spec = SyntheticSpec(processes=3, operations=400, mix=mix, version=7, ranks_per_node=3)
    synthetic(tmp_path / "capture", spec)
    above = {
        "CollApi": "GroupApi", "P2pApi": "GroupApi", "KernelLaunch": "GroupApi",
        "Coll": "CollApi", "P2p": "P2pApi",
    }  # fmt: skip
    for rank, process in enumerate(undamaged_processes(tmp_path / "capture")):
        events = {event["id"]: event for event in events_of(process)}
        for event in events.values():
            parent = events.get(event["parent"] or "")
            if event["event"] in above:
                assert parent is not None
                assert parent["event"] == above[event["event"]]
                assert parent["start_ns"] <= event["start_ns"]
            if event["event"] == "KernelCh":
                assert parent is not None
                assert parent["event"] in ("Coll", "P2p")
            if event["event"] in ("Coll", "P2p"):
                assert events[event["fields"]["parentGroup"]]["event"] == "Group"
                assert event["fields"]["rank"] == rank
                assert event["fields"]["func"] == parent["fields"]["func"]
            if event["event"] == "P2p":
                step = 1 if event["fields"]["func"] == "Send" else -1
                assert event["fields"]["peer"] == (rank + step) % 3
        names = Counter(event["event"] for event in events.values())
        assert names["P2pApi"] == names["P2p"] == 2 * (400 - names["Coll"])
        assert names["KernelCh"] == 800


def test_extensions_stay_with_their_collectives(tmp_path: Path) -> None:
    """Also where a chunk ends: there the plugin fills the last slot and goes on in the next."""
    mix = (Work(), Work("SendRecv", 4_096))
    synthetic(tmp_path / "capture", SyntheticSpec(processes=1, operations=40_000, mix=mix))
    process = undamaged_processes(tmp_path / "capture")[0]
    blocks = process.slots.blocks
    slots = process.slots.take(expand(blocks.row, blocks.count))
    keys = expand(blocks.key, blocks.count)
    heads_of_chunks = keys % 1024 == 0
    assert not heads_of_chunks.any()
    pads, chunks = (slots["kind"] == layout.KINDS["Pad"]).sum(), len(slots) / 1024
    assert 0.05 * chunks < pads < 0.25 * chunks
    at = np.flatnonzero(slots["kind"] == layout.KINDS["Coll"])
    assert (slots["kind"][at + 1] == layout.KINDS["CollExt"]).all()
    assert (keys[at + 1] == keys[at] + 1).all()


def test_groups_of_ranks(tmp_path: Path) -> None:
    groups = ((0, 1), (2, 3), (0, 2), (1, 3), (0, 1, 2, 3))
    spec = SyntheticSpec(
        processes=4,
        operations=900,
        ranks_per_node=2,
        communicators=groups,
        communicator_names=("tp0", "tp1"),
        straggler=Straggler(2, 300_000),
    )
    assert spec.layers == ((0, 1), (2, 3), (4,))
    truth = synthetic(tmp_path / "capture", spec)
    check_causes(truth)
    for rank, process in enumerate(undamaged_processes(tmp_path / "capture")):
        assert [comm.ranks for comm in process.communicators] == [2, 2, 4]
        assert process.communicators[0].name == f"tp{rank // 2}"
        check_times(process, rank, truth, [0, 1, 2])
        calls = slots_of(process, "CollApi")
        assert Counter(calls["comm"].tolist()) == {0: 300, 1: 300, 2: 300}
    world = truth.layer == 2
    assert (truth.start_ns[:, world].argmax(axis=0) == 2).all()


@pytest.mark.parametrize("one_thread", [True, False])
def test_several_ranks_in_a_process(one_thread: bool, tmp_path: Path) -> None:
    spec = SyntheticSpec(
        processes=2, ranks_per_process=2, ranks_per_node=2, operations=700, one_thread=one_thread
    )
    truth = synthetic(tmp_path / "capture", spec)
    check_causes(truth)
    processes = sorted(undamaged_processes(tmp_path / "capture"), key=lambda process: process.host)
    for number, process in enumerate(processes):
        assert [comm.rank for comm in process.communicators] == [2 * number, 2 * number + 1]
        assert len({comm.gpu_uuid for comm in process.communicators}) == 2
        names = Counter(process.threads.values())
        assert names == {"python3": 1 if one_thread else 2, "NCCL Progress 0": 2}
        for local in (0, 1):
            check_times(process, 2 * number + local, truth, [local])
        calls = slots_of(process, "GroupApi")
        if one_thread:
            assert (calls["t0"][1:] > calls["t1"][:-1]).all()


def test_what_can_go_wrong(tmp_path: Path) -> None:
    spec = SyntheticSpec(
        processes=4, operations=50, missing=frozenset({1}), killed=frozenset({2}), attempts=2
    )
    truth = synthetic(tmp_path / "capture", spec)
    processes = undamaged_processes(tmp_path / "capture")
    assert [process.rank for process in processes] == [0, 0, 2, 2, 3, 3]
    ended = [process for process in processes if process.ended]
    assert [process.rank for process in ended] == [0, 3]
    for process in processes:
        last = process.identity["env.TORCHELASTIC_RESTART_COUNT"] == "1"
        assert process.communicators[0].id == (truth if last else truth.earlier[0]).comm_ids[0]
    assert truth.call_ns.min() > truth.earlier[0].end_ns.max()


def test_random_straggler_and_seed(tmp_path: Path) -> None:
    spec = SyntheticSpec(processes=4, operations=500, straggler=Straggler(None, 500_000, 0.3))
    truth = synthetic(tmp_path / "one", spec)
    late = truth.late_rank >= 0
    assert 100 < late.sum() < 200
    assert np.array_equal(truth.start_ns[:, late].argmax(axis=0), truth.late_rank[late])
    synthetic(tmp_path / "two", spec)
    for one, two in zip(
        undamaged_processes(tmp_path / "one"), undamaged_processes(tmp_path / "two"), strict=True
    ):
        for ours, theirs in zip(one.slots.segments, two.slots.segments, strict=True):
            assert ours.tobytes() == theirs.tobytes()


def test_given_clocks(tmp_path: Path) -> None:
    spec = SyntheticSpec(
        processes=4,
        operations=200,
        ranks_per_node=2,
        node_offsets_ns=(0, 7_000_000),
        node_drift_ppm=(0.0, 30.0),
        gpu_offsets_ns=(0, 1_000, 2_000, 3_000),
        gpu_drift_ppm=(0.0, 0.5, -0.5, 1.0),
    )
    truth = synthetic(tmp_path / "capture", spec)
    for rank, process in enumerate(undamaged_processes(tmp_path / "capture")):
        check_times(process, rank, truth, [0])
    shown = truth.host_ns(2, truth.start_ns[2]) - truth.start_ns[2] - 7_000_000
    assert np.allclose(shown, (truth.start_ns[2] - truth.hosts.origin_ns) * 30e-6, atol=1)


def test_other_algorithms_do_not_wait_for_all(tmp_path: Path) -> None:
    mix = (Work("Broadcast"), Work("Reduce"), Work(algo="TREE"), Work("SendRecv", 1_024))
    spec = SyntheticSpec(
        processes=4, operations=2_000, mix=mix, arrival_jitter_ns=400_000, channels=1
    )
    truth = synthetic(tmp_path / "capture", spec)
    for number in range(len(mix)):
        own = truth.work == number
        early = truth.end_ns[:, own].min(axis=0) < truth.start_ns[:, own].max(axis=0)
        assert early.any()
    broadcast = truth.work == 0
    assert (truth.end_ns[:, broadcast] > truth.start_ns[0, broadcast]).all()
    undamaged_processes(tmp_path / "capture")


def test_clocks_drift_on_while_an_operation_waits(tmp_path: Path) -> None:
    """0.2 s of waiting at 80 ppm are 16 µs, longer than from a launch to its start."""
    spec = SyntheticSpec(
        processes=2, operations=60, straggler=Straggler(1, 200_000_000),
        node_offsets_ns=(0,), node_drift_ppm=(-80.0,), gpu_drift_ppm=(0.0, 0.0),
    )  # fmt: skip
    synthetic(tmp_path / "c", spec)
    found = open_model(tmp_path / "c").completeness
    assert (found.operations, found.gpu_timed) == (120, 120), found.untimed
