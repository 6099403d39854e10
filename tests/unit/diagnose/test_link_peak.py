"""Bandwidth against peaks: only where the capture tells them, and with their source."""

from pathlib import Path

import pytest

from ncclscope.diagnose.finding import Finding
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.diagnose.rules import link_peak
from ncclscope.model.build import open_model
from ncclscope.simulation.scenario import Call, Scenario
from tests.support.fake_machine import with_samples
from tests.support.writer.scenario import write_scenario

JOB = Scenario(ranks=4, ranks_per_host=2, steps=8, calls=(Call("world", "AllReduce", 16 << 20),))


def log_of(comm_id: int, hosts: tuple[str, ...], speed: str, how: tuple[str, ...]) -> str:
    """As NCCL writes it; `how` are the four links of the ring."""
    lines = []
    for rank, host in enumerate(hosts):
        head = f"{host}:{1000 + rank}:{2000 + rank} [{rank % 2}] NCCL INFO "
        lines += [
            f"{head}=== System : maxBw 240.0 totalBw 480.0 ===",
            f"{head}NET/IB: [0] mlx5_0:uverbs0:1/IB provider=Mlx5 {speed}context=0x1 pciPath=/x ar=0",
            f"{head}NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.{rank}<0>",
            f"{head}Pattern 4, crossNic 0, nChannels 2, bw 48.0/48.0, type NVL/PIX, sameChannels 1",
            f"{head}ncclCommInitRank comm 0x1 rank {rank} nranks 4 cudaDev 0 nvmlDev 0 busId 1 "
            f"commId {comm_id:#x} - Init START",
            f"{head}Channel 00/0 : {rank}[0] -> {(rank + 1) % 4}[0] [send] via {how[rank]}",
        ]
    return "\n".join(lines) + "\n"


def findings(directory: Path, scenario: Scenario, speed: str) -> list[Finding]:
    truth = write_scenario(directory / "c", scenario)
    hosts = tuple(f"node{scenario.host_of(rank)}" for rank in range(4))
    nvlink, network = "P2P/CUMEM", "NET/IB/0/GDRDMA"
    how = tuple(nvlink if hosts[r] == hosts[(r + 1) % 4] else network for r in range(4))
    log = log_of(truth.comm_ids[0], hosts, speed, how)
    (directory / "c" / "debug.all").write_text(log)
    return link_peak.find(RuleContext(open_model(directory / "c")))


def test_far_below_the_adapters(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, JOB, "speed=400000 ")
    assert (found.family, found.kind, found.severity) == ("below_expected", "peak", "warning")
    assert "of the 50 GB/s of mlx5_0 of node" in found.sentence
    assert "(speed: NCCL's log)" in found.sentence
    assert found.evidence[0].facts["busbw_gbs"] == pytest.approx(2, rel=0.1)


def test_near_the_adapters_is_no_finding(tmp_path: Path) -> None:
    assert not findings(tmp_path, JOB, "speed=20000 ")


def test_without_a_speed_nothing_is_claimed(tmp_path: Path) -> None:
    assert not findings(tmp_path, JOB, "")
    assert not link_peak.find(RuleContext(open_model(tmp_path / "c")))


def test_the_speed_by_samples_beside_the_run(tmp_path: Path) -> None:
    assert not findings(tmp_path, JOB, "")
    with_samples(tmp_path / "c")
    (found,) = link_peak.find(RuleContext(open_model(tmp_path / "c")))
    assert "50 GB/s of mlx5_0 of node" in found.sentence
    assert "(speed: samples beside the run)" in found.sentence


def test_small_parts_are_not_held_against_the_peak(tmp_path: Path) -> None:
    small = Scenario(ranks=4, ranks_per_host=2, steps=8, calls=(Call("world", "AllReduce", 1 << 20),))  # fmt: skip
    assert not findings(tmp_path, small, "speed=400000 ")


def test_within_a_node(tmp_path: Path) -> None:
    one_host = Scenario(ranks=4, steps=8, calls=JOB.calls)
    (found,) = findings(tmp_path, one_host, "")
    assert "of the 480 GB/s of the NVLinks of a GPU of node0" in found.sentence
    assert "(speed: NCCL's log, totalBw)" in found.sentence
