"""The machine beside a run: counters on the one clock, and what of it explains a slow job."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import ncclscope
from ncclscope.analysis.run import Run
from ncclscope.capture.housekeeping import identity_of
from ncclscope.cli import main
from ncclscope.diagnose.finding import Finding
from ncclscope.diagnose.hardware import network
from ncclscope.diagnose.hardware.peers import medians_of_others
from ncclscope.diagnose.hardware.samples import HardwareSamples
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.model.build import open_model
from ncclscope.model.schema import NONE
from ncclscope.model.system_samples import CounterSeries, system_of
from ncclscope.simulation.scenario import Call, Communicators, HostClock, Late, Scenario, SlowLink
from ncclscope.system.counters import COUNTERS, GPU, HOST, NIC, PORT, TOTAL, Counter
from ncclscope.system.sample import Sample
from tests.support.diagnosis import diagnose_capture
from tests.support.fake_machine import (
    SAMPLES,
    THE,
    Change,
    Numbers,
    gpu,
    nic,
    port,
    with_samples,
    write_journal,
)
from tests.support.player import ncclscope as command
from tests.support.sampled_jobs import run_sampled
from tests.support.writer.scenario import write_scenario

JOB = Scenario(
    ranks=16, ranks_per_host=8, steps=30, compute_ms=4,
    communicators=(Communicators("tp", 8), Communicators("dp", 2, 8)),
    calls=(Call("tp", "AllReduce", 1 << 20), Call("dp", "AllReduce", 1 << 21)),
    host_clocks=(HostClock(1, offset_ms=5000, drift_ppm=30),),
)  # fmt: skip
LATE = replace(JOB, late=(Late(11, 6.0),))  # GPU 3 of node1


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Scenario], Path]:
    """A capture of a scenario; each is written once."""
    made: dict[str, Path] = {}

    def capture_of(scenario: Scenario) -> Path:
        key = repr(scenario)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("job") / "c"
            write_scenario(made[key], scenario, 1)
            open_model(made[key])
        for journal in made[key].glob("system.*"):
            journal.unlink()
        return made[key]

    return capture_of


Written = Callable[[Scenario], Path]


def found(capture: Path) -> list[Finding]:
    return list(diagnose_capture(capture).findings)


def of_machine(capture: Path) -> list[Finding]:
    return [finding for finding in found(capture) if finding.family == "machine"]


def change(where: str, device: object, at_least: int = 0, **numbers: object) -> Change:
    """Makes a device of a host say something else; a number grows with the samples if asked to."""

    def changed(host: str, said: Numbers, at: int) -> None:
        if host == where and at >= at_least:
            for name, value in numbers.items():
                said[device][name] = value(at) if callable(value) else value  # type: ignore[index,assignment]

    return changed


# ---- a throttled GPU and the rank on it ----
def test_a_late_rank_on_a_throttled_gpu(
    written: Written, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = with_samples(
        written(LATE), change("node1", gpu(3), throttle_reasons=0x48, sm_clock_mhz=1200)
    )
    first, *others = found(capture)
    assert (first.family, first.ranks) == ("straggler", (11,))
    assert "the likely reason: it is too hot" in first.advice
    said = (
        "GPU 3 of node1 (rank 11) was slowed down 100 % of the time (HW thermal slowdown), others "
    )
    assert f"beside it: {said}never; its clock was 1200 MHz" in first.evidence[-1].text
    (slowed,) = [one for one in others if one.family == "machine"]
    assert (slowed.kind, slowed.severity, slowed.ranks) == ("slowed GPU", "warning", (11,))
    assert slowed.hosts == ("node1",)
    # The command shows the numbers.
    command = slowed.evidence[0].command
    assert command == f"ncclscope dump {capture} --system --host node1 --device 3"
    assert main(command.split()[1:]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + SAMPLES
    assert "throttle_reasons=72" in lines[1]
    assert main(["diagnose", str(capture), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["findings"][0]["evidence"][-1]["facts"]["clock_mhz"] == 1200


def test_only_some_of_the_time(written: Written) -> None:
    capture = with_samples(
        written(LATE),
        change("node1", gpu(3), SAMPLES // 2, throttle_reasons=0x40, sm_clock_mhz=1000),
    )
    (slowed,) = of_machine(capture)
    assert 0.45 < slowed.evidence[0].facts["slowed_share"] < 0.55


def test_a_healthy_machine(written: Written) -> None:
    assert of_machine(with_samples(written(JOB))) == []
    with_machine = found(with_samples(written(LATE)))
    without = found(written(LATE))
    assert with_machine == without


HEALTHY_ENOUGH = {
    "an idle GPU may be slow": change("node0", gpu(2), throttle_reasons=0x41, utilization_percent=0),
    "a moment of heat": change("node0", gpu(2), SAMPLES - 6, throttle_reasons=0x40),
    "all at their power limit": lambda host, said, at: [said[d].update(throttle_reasons=4) for d in said if d.kind == GPU],
    "some retransmissions": change("node0", port("mlx5_1/1"), retransmissions=lambda at: 40 + at // 3),
    "much traffic, and its share of retransmissions": change("node0", port("mlx5_1/1"), tx_bytes=lambda at: 10**12 + at * 120_000_000, retransmissions=lambda at: 40 + at * 3),
    "a counter that was reset": change("node1", port("mlx5_1/1"), 30, symbol_errors=0, retransmissions=0),
    "an interface of nobody with errors": change("node0", nic("eth0"), rx_bytes=5, tx_bytes=5, rx_errors=lambda at: at * 9),
    "a board with eight lanes": lambda host, said, at: [said[d].update(pcie_width=8) for d in said if d.kind == GPU],
    "old errors": change("node0", gpu(1), ecc_uncorrected=4, nvlink_errors=10**6),
    "busy disks everywhere": lambda host, said, at: said[THE].update(io_full_us=at * 10**7),
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY_ENOUGH)
def test_no_warning_of_what_is_usual(name: str, written: Written) -> None:
    capture = with_samples(written(JOB), HEALTHY_ENOUGH[name])  # type: ignore[arg-type]
    assert [one.sentence for one in found(capture) if one.severity != "info"] == []


FAULTS = {
    "power cap": (change("node1", gpu(5), throttle_reasons=4, sm_clock_mhz=1300, power_limit_mw=400_000), (13,)),
    "full PCIe link": (change("node0", gpu(6), pcie_rx_bytes=lambda at: at * 10**12), (6,)),
    "narrow PCIe link": (change("node0", gpu(6), pcie_width=4), (6,)),
    "Xid errors": (change("node1", gpu(0), 50, xid_errors=1, last_xid=79), (8,)),
    "ECC errors": (change("node1", gpu(7), 10, ecc_uncorrected=1), (15,)),
    "NVLink errors": (change("node1", gpu(7), nvlink_errors=lambda at: 2 + 30 * at), (15,)),
    "network errors": (change("node0", port("mlx5_2/1"), symbol_errors=lambda at: at * 100), ()),
    "slow network link": (change("node0", port("mlx5_2/1"), speed_mbit_s=100_000, rx_bytes=1, tx_bytes=1), ()),
    "full network link": (change("node0", port("mlx5_2/1"), tx_bytes=lambda at: at * 10**12), ()),
    "network link down": (change("node0", port("mlx5_2/1"), 20, up=0), ()),
    "short of memory": (change("node1", THE, memory_full_us=lambda at: at * 10**6), ()),
    "short of cpu": (change("node1", THE, cpu_throttled_us=lambda at: at * 10**6), ()),
    "out of memory": (change("node1", THE, 30, oom_kills=3), ()),
}  # fmt: skip


@pytest.mark.parametrize("kind", FAULTS)
def test_each_fault_is_named(kind: str, written: Written) -> None:
    planted, ranks = FAULTS[kind]
    (finding,) = of_machine(with_samples(written(JOB), planted))
    assert (finding.kind, finding.severity, finding.ranks) == (kind, "warning", ranks)
    assert finding.hosts in (("node0",), ("node1",))
    assert finding.evidence[0].command
    assert finding.advice


def test_a_downed_link_during_the_run(written: Written) -> None:
    planted = change("node0", port("mlx5_3/1"), 30, link_downed=2)
    (finding,) = of_machine(with_samples(written(JOB), planted))
    assert "mlx5_3/1 of node0 had 1 loss of its link" in finding.sentence


def test_a_bad_port_explains_a_slow_link_and_no_straggler(written: Written) -> None:
    slow = replace(JOB, slow_links=(SlowLink(ranks=(3, 11), factor=30),))
    planted = change("node1", port("mlx5_0/1"), retransmissions=lambda at: at * 1000)
    first = found(with_samples(written(slow), planted))[0]
    assert first.family == "slow_link"
    assert "mlx5_0/1 of node1 had" in first.evidence[-1].text
    assert "look at its cable" in first.advice
    late = found(with_samples(written(LATE), planted))[0]
    assert late.family == "straggler"
    assert not any("mlx5_0" in one.text for one in late.evidence)


# ---- what many share ----
MANY = replace(
    JOB,
    ranks=64,
    steps=8,
    communicators=(Communicators("tp", 8), Communicators("dp", 8, 8)),
    host_clocks=(),
)


def everywhere(kind: str, **numbers: object) -> Change:
    """Makes all devices of a kind say something else."""

    def changed(host: str, said: Numbers, at: int) -> None:
        for device in said:
            if device.kind == kind:
                for name, value in numbers.items():
                    said[device][name] = value(at) if callable(value) else value  # type: ignore[assignment]

    return changed


SHARED = {
    "full network link": (everywhere(PORT, tx_bytes=lambda at: at * 10**12), "32 of 32 network ports were full 100 % of the time", 0),
    "full PCIe link": (everywhere(GPU, pcie_rx_bytes=lambda at: at * 10**12), "PCIe links of 64 of 64 GPUs were full 100 % of the time", 64),
    "slowed GPU": (everywhere(GPU, throttle_reasons=0x40), "64 of 64 GPUs were slowed down 100 % of the time (HW thermal slowdown)", 64),
    "short of io": (everywhere(HOST, io_full_us=lambda at: at * 10**7), "everything on 8 of 8 hosts waited for I/O 100 % of the time", 0),
}  # fmt: skip


@pytest.mark.parametrize("kind", SHARED)
def test_what_all_share_is_one_remark(kind: str, written: Written) -> None:
    planted, sentence, ranks = SHARED[kind]
    (finding,) = [
        one for one in of_machine(with_samples(written(MANY), planted)) if one.kind == kind
    ]
    assert finding.sentence == sentence
    assert (len(finding.hosts), len(finding.ranks)) == (8, ranks)
    assert len(finding.evidence) == 4  # the count, and some of them
    assert all(one.command for one in finding.evidence)


def test_the_slowest_of_slowed_gpus_has_its_own_remark(written: Written) -> None:
    def planted(host: str, said: Numbers, at: int) -> None:
        everywhere(GPU, throttle_reasons=0x40)(host, said, at)
        change("node2", gpu(3), sm_clock_mhz=900)(host, said, at)

    first, second = [
        one for one in of_machine(with_samples(written(MANY), planted)) if one.kind == "slowed GPU"
    ]
    assert sorted([len(first.ranks), len(second.ranks)]) == [1, 63]
    own = min(first, second, key=lambda one: len(one.ranks))
    assert own.ranks == (19,)
    assert "its clock was 900 MHz, theirs 17" in own.sentence


def test_of_a_kind_the_worst_and_how_many_more(written: Written) -> None:
    """Ports of three hosts have errors, which is not usual; the last of them has most."""

    def planted(host: str, said: Numbers, at: int) -> None:
        if host in ("node1", "node4", "node6"):
            for device in said:
                if device.kind == PORT:
                    said[device]["symbol_errors"] = at * (900 if host == "node6" else 100)

    remarks = of_machine(with_samples(written(MANY), planted))
    assert [one.kind for one in remarks] == ["network errors"] * 7
    assert sum(one.hosts == ("node6",) for one in remarks) == 4
    assert remarks[-1].sentence == "network errors: 6 more like these, on node1, node4"
    assert remarks[-1].hosts == ("node1", "node4")


def test_what_others_have() -> None:
    rng = np.random.default_rng(1)
    for count in (2, 3, 4, 7, 10):
        values = {(node, THE): float(rng.integers(0, 5)) for node in range(count)}
        for place, theirs in medians_of_others(values).items():
            assert theirs == np.median([n for of, n in values.items() if of != place])
    assert medians_of_others({(0, THE): 1.0}) == {}


def test_thousands_of_ports_are_put_in_order_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A counter of 3,000 ports; medians are counted, since times depend on the machine."""
    sorted_so_often = 0
    argsort = np.argsort

    def counted(*args: object, **named: object) -> object:
        nonlocal sorted_so_often
        sorted_so_often += 1
        return argsort(*args, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(np, "argsort", counted)
    monkeypatch.setattr(np, "median", None)
    grown = {(node, port(f"mlx5_{n}/1")): node for node in range(500) for n in range(6)}
    moved = dict.fromkeys(grown, 10**9)
    assert len(network._usual_errors(grown, moved)) == 3000
    assert sorted_so_often == 2


def test_the_last_xid_is_named_first(written: Written) -> None:
    def planted(host: str, said: Numbers, at: int) -> None:
        number = 0 if at < 20 else 79 if at < 40 else 43
        change("node1", gpu(0), xid_errors=at // 20, last_xid=number)(host, said, at)

    (finding,) = of_machine(with_samples(written(JOB), planted))
    assert finding.sentence == (
        "the driver reported Xid 43 (an error of the program), before it 79 (it has fallen off "
        "the bus), of GPU 0 of node1 (rank 8)"
    )


def test_throttled_time_adds_up_over_cpus(written: Written) -> None:
    """One CPU of 192 is kept all the time: no shortage; half of them: half of the time."""
    begin, end = Run(open_model(written(JOB))).extent
    sample_us = (end - begin) / (SAMPLES - 1) / 1e3
    planted = change("node1", THE, cpu_throttled_us=lambda at: round(at * sample_us))
    assert of_machine(with_samples(written(JOB), planted)) == []
    planted = change("node1", THE, cpu_throttled_us=lambda at: round(at * sample_us * 96))
    (finding,) = of_machine(with_samples(written(JOB), planted))
    assert "for 50 % of all CPUs' time" in finding.sentence


def test_gpus_of_others_are_not_ours(written: Written) -> None:
    """Ranks are on half of the GPUs; another job's GPU is hot."""
    two = replace(
        LATE,
        ranks=8,
        ranks_per_host=4,
        communicators=(Communicators("tp", 4), Communicators("dp", 2, 4)),
        late=(),
    )
    planted = change("node0", gpu(7), throttle_reasons=0x40, sm_clock_mhz=900)
    assert of_machine(with_samples(written(two), planted)) == []


def test_a_gpu_of_nobody_knows_whom_explains_no_rank(written: Written) -> None:
    def nameless(host: str, said: Numbers, at: int) -> None:
        for device in said:
            device.facts.pop("uuid", None)
            device.facts.pop("bus_id", None)
        change("node1", gpu(3), throttle_reasons=0x48, sm_clock_mhz=1200)(host, said, at)

    first, *others = found(with_samples(written(LATE), nameless))
    assert (first.family, first.ranks) == ("straggler", (11,))
    assert not any("GPU 3" in one.text for one in first.evidence)
    assert [one.kind for one in others if one.family == "machine"] == ["slowed GPU"]
    everybody = replace(
        JOB, ranks_per_host=4, late=tuple(Late(rank, 6.0) for rank in range(4, 8)),
        communicators=(Communicators("tp", 4), Communicators("dp", 4, 4)), host_clocks=(),
    )  # fmt: skip
    host = found(with_samples(written(everybody), nameless))[0]
    assert host.kind.startswith("host ")
    assert "GPU 3 of node1 was slowed down" in host.evidence[-1].text


@pytest.mark.parametrize(
    ("uuid", "bus_id"),
    [
        ("GPU-00000000-1111-2222-3333-444444444444", "00000000:01:00.0"),
        ("MIG-51309a7e-0000-0000-0000-000000000001", ""),
        ("MIG-GPU-51309a7e-0000-0000-0000-000000000001/7/0", ""),  # of older drivers
    ],
)
def test_ranks_on_instances_of_a_mig_gpu(tmp_path: Path, uuid: str, bus_id: str) -> None:
    """CUDA gives each instance a uuid of its own, and all of them the GPU's bus id: counters of the
    GPU are of all ranks on it, those of an instance of its rank.
    """
    rank, _ = run_sampled(tmp_path / "c", "eager:20", NCCLSCOPE_SIM_MIG="1")
    device = gpu(7, uuid=uuid, bus_id=bus_id)
    said = [Sample(at * 10**9, 1, {device: {"power_mw": 100}}) for at in range(1, 9)]
    write_journal(tmp_path / "c", rank.identity["host"], said, boot_id=rank.identity["boot_id"])
    ranks_of = HardwareSamples(RuleContext(open_model(tmp_path / "c"))).ranks_of
    assert ranks_of == {(0, device): (0, 1) if bus_id else (0,)}


def test_busy_with_waiting(written: Written) -> None:
    """Ranks wait for one that computes long: utilisation says they are busy."""

    def still(host: str, said: Numbers, at: int) -> None:
        for device in said:
            if device.kind == GPU:
                said[device] |= {
                    "nvlink_rx_bytes": 10**14,
                    "pcie_rx_bytes": 10**12,
                    "throttle_reasons": 0,
                }

    waiting = replace(JOB, compute_ms=1, late=(Late(11, 30.0),))
    remarks = [
        one
        for one in of_machine(with_samples(written(waiting), still))
        if one.kind == "busy waiting"
    ]
    assert [one.severity for one in remarks] == ["info"]
    assert "which count as work while they wait" in remarks[0].sentence
    assert not [
        one for one in of_machine(with_samples(written(waiting))) if one.kind == "busy waiting"
    ]


# ---- tables and clocks ----
def test_samples_are_on_the_one_clock(written: Written) -> None:
    capture = with_samples(written(JOB))
    model = open_model(capture)
    begin, end = Run(model).extent
    tracks = system_of(model).of(GPU, "power_mw")
    assert len(tracks) == 16
    for track in tracks.values():
        assert abs(int(track.time_ns[0]) - begin) < 10**6
        assert abs(int(track.time_ns[-1]) - end) < 10**6  # node1's clock is 5 s ahead
    assert HardwareSamples(RuleContext(model)).ranks_of[1, gpu(3)] == (11,)
    opened = ncclscope.open(capture)
    rows = opened.sql(
        "select host, count(*) from system where counter = 'power_mw' group by 1 order by 1"
    )
    assert rows.fetchall() == [("node0", 8 * SAMPLES), ("node1", 8 * SAMPLES)]
    (rate,) = opened.sql(
        "select median(per_second) from system where counter = 'nvlink_rx_bytes'"
    ).fetchall()
    assert abs(rate[0] / 90e9 - 1) < 0.01
    gauges = opened.system.filter("counter = 'up'").project("per_second").distinct()
    assert gauges.fetchall() == [(None,)]


def test_without_samples_there_are_no_rows(written: Written) -> None:
    assert ncclscope.open(written(JOB)).system.fetchall() == []


def test_files_of_other_boots_and_hosts_are_left(written: Written) -> None:
    capture = written(JOB)
    write_journal(capture, "node0", [Sample(1, 1, {THE: {"cpus": 1}})], boot_id="another")
    write_journal(capture, "elsewhere", [Sample(1, 1, {THE: {"cpus": 1}})])
    system = system_of(open_model(capture))
    assert (system.tracks, system.unplaced) == ((), 2)
    (remark,) = of_machine(capture)
    assert (remark.kind, remark.severity) == ("samples missing", "info")


def test_what_samplers_say_of_themselves_is_told(written: Written) -> None:
    """Samples deleted to make room, counters that could not be had, files of a later release."""
    capture = written(JOB)
    sample, why = [Sample(1, 1, {THE: {"cpus": 1}})], "no GPU counters: NVML says: no driver"
    about = {"sampler": "a", "samples_deleted": 500, "notes": [why]}
    for host in ("node0", "node1"):
        write_journal(capture, host, sample, boot_id=_boot(capture, host), **about)
    later = write_journal(capture, "node2", sample, pid=7)
    later.write_text(later.read_text().replace('"version":1', '"version":9'))
    system = system_of(open_model(capture))
    assert (system.newer, system.damaged, system.unplaced) == (1, 0, 0)
    (remark,) = of_machine(capture)
    assert (remark.kind, remark.severity) == ("samples missing", "info")
    assert "1,000 of the beginning were deleted to make room" in remark.sentence
    assert f"{why} (on 2 hosts)" in remark.sentence
    assert "1 are files of a later release" in remark.sentence
    assert "upgrade ncclscope" in remark.advice
    printed = command("dump", capture, "--system")
    assert printed.returncode == 0
    assert f"{later.name}: its format 9 is newer than this release reads (1)" in printed.stderr


def test_dump_takes_what_fits_together(written: Written) -> None:
    capture = written(JOB)
    boot = _boot(capture, "node0")
    write_journal(capture, "node0", [Sample(1, 1, {THE: {"cpus": 1}})], boot_id=boot)
    for words, said in (
        (("--system", "--rank", "0"), "--rank chooses events, --system prints samples"),
        (("--system", "--event", "Coll"), "--event chooses events"),
        (("--host", "node0"), "--host chooses samples of the machine"),
        (("--device", "0"), "--device chooses samples of the machine"),
        (("--system", "--host", "nodeX"), "no such host"),
        (("--system", "--host", "nodeX"), "There are samples of node0"),
        (("--system", "--device", "17"), "no such device. There are host"),
        (("--rank", "99"), "cannot dump rank 99: no such process"),
    ):
        printed = command("dump", capture, *words)
        assert (printed.returncode, printed.stdout) == (2, ""), words
        assert said in printed.stderr, printed.stderr


def _boot(capture: Path, host: str) -> str:
    model = open_model(capture)
    node = model.nodes.index(host)
    folder = next(row.folder for row in model.processes if row.node == node)
    return identity_of(capture / folder)["boot_id"]


def test_totals_of_two_containers_are_not_mixed(written: Written) -> None:
    """The same interface's name on the same host, and another interface behind it."""
    capture = written(JOB)
    model = open_model(capture)
    folder = next(row.folder for row in model.processes if row.node == 0)
    boot_id = identity_of(capture / folder)["boot_id"]

    def taken(first: int, last: int, base: int, **more: int) -> list[Sample]:
        said = ({nic("eth0"): {"rx_bytes": base + at} | more} for at in range(first, last))
        return [
            Sample(at * 10**9, 1, one) for at, one in zip(range(first, last), said, strict=True)
        ]

    write_journal(capture, "node0", taken(10, 50, 10**12), boot_id=boot_id)
    write_journal(capture, "node0", taken(5, 30, 0, tx_bytes=7), boot_id=boot_id)
    write_journal(capture, "node0", taken(60, 70, 10**9), boot_id=boot_id)  # later, another one
    system = system_of(model)
    track = system.of(NIC, "rx_bytes")[0, nic("eth0")]
    assert (track.value // 10**6).tolist() == [0] * 5 + [10**6] * 40 + [10**3] * 10
    assert track.growth() == 4 + 39 + 9
    rates = track.per_second()
    assert np.flatnonzero(np.isnan(rates)).tolist() == [0, 5, 45]
    assert np.nanmax(rates) < 1.1
    assert len(system.of(NIC, "tx_bytes")[0, nic("eth0")].value) == 5
    (most,) = HardwareSamples(RuleContext(model)).series(NIC, "rx_bytes").values()
    assert len(most.sampler) == len(most.value)


def test_facts_are_those_of_the_samples_that_are_kept(written: Written) -> None:
    capture = written(JOB)
    model = open_model(capture)
    folder = next(row.folder for row in model.processes if row.node == 0)
    boot_id = identity_of(capture / folder)["boot_id"]
    for samples, uuid in ((3, "few"), (9, "many")):
        said = {gpu(0, uuid=uuid): {"power_mw": samples}}
        taken = [Sample(at * 10**9, 1, said) for at in range(1, 1 + samples)]
        write_journal(capture, "node0", taken, boot_id=boot_id)
    (track,) = system_of(model).tracks
    assert track.device.facts["uuid"] == "many"
    assert track.value.tolist() == [9] * 9


def test_totals_that_are_reset_or_missing() -> None:
    times = np.arange(6, dtype=np.int64) * 10**9
    values = np.array([10, 20, NONE, 40, 3, 5], np.int64)
    track = CounterSeries(0, THE, Counter("x", TOTAL, ""), times, values, np.zeros(6, np.int64))
    assert track.growth() == 10 + 20 + 2
    assert np.nan_to_num(track.per_second(), nan=-1).tolist() == [-1, 10, -1, 10, -1, 2]


def test_damage_is_no_reason_to_fail(written: Written) -> None:
    """Every kind of wrong number in every counter; nothing may raise."""
    capture = written(JOB)
    rng = np.random.default_rng(0)
    odd = [0, 1, 2**31, 2**62, 2**63 - 1]

    def anything(host: str, said: Numbers, at: int) -> None:
        for device in said:
            for counter in COUNTERS[device.kind]:
                said[device][counter.name] = int(rng.choice(odd))

    for text in (
        b"",
        b"{}\n",
        b"\xff" * 100,
        b'{"ncclscope":"system","version":1,"host":"node0"}\n[1,2]\n',
    ):
        (capture / "system.x.1.0.jsonl").write_bytes(text)
        found(capture)
    found(with_samples(capture, anything, samples=12))
    for samples in (2, 3):
        found(with_samples(written(JOB), anything, samples=samples))
    assert main(["diagnose", str(capture)]) == 0


def test_numpy_is_enough(written: Written) -> None:
    capture = with_samples(written(LATE))
    code = "import sys; sys.modules['duckdb'] = None; from ncclscope.cli import main; "
    code += f"sys.exit(main(['diagnose', {str(capture)!r}]))"
    ran = partial(subprocess.run, capture_output=True, text=True, check=False)(
        [sys.executable, "-c", code]
    )
    assert ran.returncode == 0, ran.stderr
