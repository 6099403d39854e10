"""Samples of machines as metrics: from files of captures, or sampled here."""

import os
import socket
import threading
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ncclscope.live.exposition import exposition
from ncclscope.live.job_follower import JobFollower
from ncclscope.live.metrics import SYSTEM_METRICS
from ncclscope.live.metrics_cache import MetricsCache
from ncclscope.live.series import Samples
from ncclscope.live.system_metrics import PcieCapacities, SystemMetrics, add_host
from ncclscope.live.textfiles import write_textfiles
from ncclscope.system.counters import Device
from ncclscope.system.sample import Sample, SystemReader
from tests.support.fake_machine import THE, gpu, nic, port, whole_tree, write_journal

HERE = socket.gethostname()


def text_of(samples: Samples) -> str:
    return exposition(samples.in_order())


def now(**numbers: int) -> Sample:
    return Sample(time.monotonic_ns(), time.time_ns(), {THE: numbers})


def test_a_link_can_carry_as_much_while_its_gpu_is_idle() -> None:
    """Generations fall then; what is full is measured against the highest."""
    capacities: PcieCapacities = {}
    for generation in (5, 1):
        samples = Samples()
        numbers = {gpu(3): {"pcie_generation": generation, "pcie_width": 16}}
        add_host(samples, "node1", Sample(1, 1, numbers), 0.5, capacities)
        capacity = 'ncclscope_gpu_pcie_capacity_bytes_per_second{host="node1",gpu="3"} 63008000000'
        assert capacity in text_of(samples).splitlines()


def test_devices_of_a_later_release_are_no_links() -> None:
    samples = Samples()
    numbers = {Device("switch", "s0", {}): {"rx_bytes": 7, "up": 1}}
    add_host(samples, "node1", Sample(1, 1, numbers), 0.5, {})
    assert "s0" not in text_of(samples)


def test_one_host() -> None:
    slowed = {"throttle_reasons": 0x48, "pcie_generation": 4, "pcie_width": 16, "power_mw": 350_500}
    numbers = {
        gpu(3): slowed, nic("eth0"): {"rx_bytes": 7, "rx_errors": 2, "speed_mbit_s": 100_000},
        port("mlx5_0/1"): {"retransmissions": 4, "up": 0}, THE: {"memory_full_us": 2_500_000},
    }  # fmt: skip
    samples = Samples()
    add_host(samples, 'node"1', Sample(1, 1, numbers), 0.5, {})
    text = text_of(samples)
    for line in (
        'ncclscope_gpu_slowed{host="node\\"1",gpu="3",reason="HW thermal slowdown"} 1',
        'ncclscope_gpu_slowed{host="node\\"1",gpu="3",reason="SW power cap"} 0',
        'ncclscope_gpu_power_watts{host="node\\"1",gpu="3"} 350.5',
        'ncclscope_gpu_pcie_capacity_bytes_per_second{host="node\\"1",gpu="3"} 31504000000',
        'ncclscope_link_speed_bytes_per_second{host="node\\"1",link="eth0"} 12500000000',
        'ncclscope_link_errors_total{host="node\\"1",link="mlx5_0/1",reason="retransmissions"} 4',
        'ncclscope_link_up{host="node\\"1",link="mlx5_0/1"} 0',
        'ncclscope_host_pressure_seconds_total{host="node\\"1",resource="memory",who="full"} 2.5',
    ):
        assert line in text.splitlines()
    assert len(list(text_string_to_metric_families(text))) == len(samples.values)
    assert set(samples.values) <= {metric.name for metric in SYSTEM_METRICS}


def test_this_machine_is_sampled_where_nobody_does(tmp_path: Path) -> None:
    system_metrics = SystemMetrics(whole_tree(tmp_path / "root"), 0.05)
    text = text_of(system_metrics.read([tmp_path]))
    assert f'ncclscope_host_cpus{{host="{HERE}"}} 2' in text
    assert (
        f'ncclscope_link_bytes_total{{host="{HERE}",link="mlx5_0/1",direction="tx"}} 4000' in text
    )


def test_a_file_is_read_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_journal(tmp_path, HERE, [now(cpus=77)])
    write_journal(tmp_path, "elsewhere", [now(cpus=88)], pid=2)
    never = pytest.MonkeyPatch()
    never.setattr(SystemReader, "__init__", lambda *_: pytest.fail("sampled"))
    text = text_of(SystemMetrics(Path("/"), 1.0).read([tmp_path, tmp_path]))
    assert f'ncclscope_host_cpus{{host="{HERE}"}} 77' in text
    assert "elsewhere" not in text
    text = text_of(SystemMetrics(Path("/"), 1.0, all_hosts=True).read([tmp_path]))
    assert 'ncclscope_host_cpus{host="elsewhere"} 88' in text
    never.undo()
    # What is no longer written is not shown as if it were.
    for path in tmp_path.glob("system.*"):
        os.utime(path, (1, 1))
    text = text_of(SystemMetrics(whole_tree(tmp_path / "root"), 0.05).read([tmp_path]))
    assert f'ncclscope_host_cpus{{host="{HERE}"}} 2' in text


def test_a_driver_that_hangs_does_not_stop_readings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()  # never: who waits for the driver waits for ever
    monkeypatch.setattr(SystemReader, "read", lambda _: answers.wait(600))
    system_metrics = SystemMetrics(tmp_path, 1.0)
    for _ in range(5):
        assert system_metrics.read([]).values == {}
    answers.set()


def test_a_text_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    follower = JobFollower((str(tmp_path / "empty"),))
    reader = MetricsCache(
        follower, 500, system_metrics=SystemMetrics(whole_tree(tmp_path / "root"), 0.05)
    )
    reader.read()
    (path,) = write_textfiles(tmp_path, reader, set())
    assert path.name == "ncclscope-system.prom"
    assert "ncclscope_host_cpus" in path.read_text()


def test_a_file_that_is_written_seldom_is_fresh_for_longer(tmp_path: Path) -> None:
    """Three of its own intervals; whatever it says, no more than `run` would take."""
    for interval_ms, age_s, fresh in (
        (60_000, 100, True),
        (60_000, 200, False),
        (1_000, 100, False),
        (1 << 39, 4 * 3600, False),
    ):
        then = time.time_ns() - age_s * 10**9
        taken = [Sample(1, then, {THE: {"cpus": 66}})]
        path = write_journal(tmp_path, "elsewhere", taken, interval_ms=interval_ms)
        os.utime(path, ns=(then, then))
        system_metrics = SystemMetrics(whole_tree(tmp_path / "root"), 1.0, all_hosts=True)
        text = text_of(system_metrics.read([tmp_path]))
        assert ('ncclscope_host_cpus{host="elsewhere"} 66' in text) == fresh, (interval_ms, age_s)
        system_metrics.stop_sampling()
        path.unlink()
