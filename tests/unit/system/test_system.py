"""Counters of machines that are not there, and the files that samples are kept in."""

import importlib
import json
import os
import re
import sys
from pathlib import Path

import pytest

from ncclscope.system import gpus
from ncclscope.system.counters import (
    COUNTERS,
    HOST,
    NIC,
    PORT,
    POWER_CAP,
    SLOWDOWNS,
    THE_HOST,
    Device,
    pcie_capacity,
)
from ncclscope.system.gpus import Gpus
from ncclscope.system.host import read_host
from ncclscope.system.network import read_network
from ncclscope.system.sample import Sample, SystemReader
from ncclscope.system.sample_files import (
    FILES,
    NOT_THERE,
    SampleTail,
    read_sample_file,
    sample_files_in,
)
from ncclscope.system.sample_writer import SampleWriter
from tests.support.fake_machine import (
    FAKE_NVML,
    HEALTHY_GPU,
    THE,
    gpu,
    gpus_file,
    nic,
    whole_tree,
    write_tree,
)
from tests.support.paths import ROOT


# ---- /proc and /sys ----
def test_a_whole_host(tmp_path: Path) -> None:
    (numbers,) = read_host(whole_tree(tmp_path)).values()
    tick = 1000 // os.sysconf("SC_CLK_TCK")
    assert numbers == {
        "cpus": 2, "cpu_busy_ms": (1000 + 10 + 500 + 5 + 6) * tick, "cpu_steal_ms": 7 * tick,
        "memory_available_bytes": 400 << 10, "memory_bytes": 1000 << 10, "swap_used_bytes": 25 << 10,
        "oom_kills": 3, "cpu_pressure_us": 1234, "memory_pressure_us": 50, "memory_full_us": 20,
        "io_pressure_us": 70, "io_full_us": 60, "cpu_throttled_us": 900,
    }  # fmt: skip


def test_interfaces_and_ports(tmp_path: Path) -> None:
    found = read_network(whole_tree(tmp_path))
    assert [device.name for device in found] == ["eth0", "mlx5_0/1"]  # neither lo nor docker0
    assert found[Device(NIC, "eth0")] == {
        "rx_bytes": 100, "tx_bytes": 101, "rx_errors": 102, "tx_errors": 103, "rx_dropped": 104,
        "tx_dropped": 105, "up": 1, "speed_mbit_s": 100_000,
    }  # fmt: skip
    assert found[Device(PORT, "mlx5_0/1")] == {
        "tx_bytes": 4000, "rx_bytes": 8000, "link_downed": 1, "symbol_errors": 2, "rx_errors": 3,
        "tx_discards": 4, "link_recoveries": 5, "tx_wait_ticks": 6, "retransmissions": 24,
        "congestion_notices": 10, "up": 1, "speed_mbit_s": 400_000,
    }  # fmt: skip


def test_a_container_has_its_own_interface(tmp_path: Path) -> None:
    write_tree(
        tmp_path, {"sys/class/net/eth0/statistics/rx_bytes": 5, "sys/class/net/eth0/speed": "-1"}
    )
    assert read_network(tmp_path) == {Device(NIC, "eth0"): {"rx_bytes": 5}}


def test_odd_files_are_no_numbers(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            "proc/stat": "cpu ² ² ² ² ² ² ² ²\n\n\0\n", "proc/meminfo": "MemTotal:\nMemAvailable: lots kB\n",
            "proc/vmstat": "oom_kill ²\n", "proc/pressure/cpu": "some total=\nfull\n",
            "sys/class/net/eth0/statistics/rx_bytes": "٣\n", "sys/class/net/eth0/operstate": "unknown\n",
            "sys/class/net/eth1/statistics/rx_bytes": "9" * 30,
            "sys/class/infiniband/mlx5_0/ports/1/rate": "fast\n",
        },
    )  # fmt: skip
    assert read_host(tmp_path) == {}
    assert read_network(tmp_path) == {}


def test_a_machine_with_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    machine = SystemReader(tmp_path)
    assert machine.read().numbers == {}
    assert "nvidia-ml-py is not installed" in machine.notes[0]


def test_this_machine() -> None:
    numbers = SystemReader().read().numbers
    assert numbers[Device(HOST, THE_HOST)]["memory_bytes"] > 0


# ---- NVML ----
@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of GPUs that a made-up pynvml tells of."""
    monkeypatch.syspath_prepend(FAKE_NVML)
    monkeypatch.setitem(sys.modules, "pynvml", None)  # so that what was there comes back
    del sys.modules["pynvml"]
    importlib.invalidate_caches()
    monkeypatch.setenv("FAKE_NVML", str(tmp_path / "gpus.json"))
    return tmp_path / "gpus.json"


def test_gpus(nvml: Path) -> None:
    gpus_file(nvml, HEALTHY_GPU, HEALTHY_GPU | {"throttle": 0x48, "xids": [79, 31]})
    first, second = Gpus().read().items()
    assert first[0].facts["uuid"] == HEALTHY_GPU["uuid"]
    assert first[0].facts["bus_id"] == "00000000:10:00.0"
    assert first[1]["nvlink_tx_bytes"] == 10**9 * 1024
    assert first[1]["nvlink_errors"] == 0
    assert first[1]["xid_errors"] == 0
    assert "pcie_tx_bytes_per_s" not in first[1]  # it takes 20 ms, and there is the total
    assert second[1]["throttle_reasons"] == 0x48
    assert (second[1]["xid_errors"], second[1]["last_xid"]) == (2, 31)
    names = {counter.name for counter in COUNTERS["gpu"]} - {
        "pcie_tx_bytes_per_s",
        "pcie_rx_bytes_per_s",
    }
    assert set(first[1]) == names


def test_a_gpu_that_knows_little(nvml: Path) -> None:
    little = {"uuid": "GPU-1", "utilization": 5, "pcie_kb_per_s": 7}
    gpus_file(nvml, little, HEALTHY_GPU)
    found = Gpus()
    for _ in range(2):
        assert next(iter(found.read().values())) == {
            "utilization_percent": 5, "pcie_tx_bytes_per_s": 7000, "pcie_rx_bytes_per_s": 7000,
        }  # fmt: skip


def test_a_gpu_that_is_lost_and_comes_back(nvml: Path) -> None:
    gpus_file(nvml, HEALTHY_GPU)
    found = Gpus()
    gpus_file(
        nvml, {name: "lost" for name in HEALTHY_GPU if "_bytes" not in name and "nv" not in name}
    )
    (numbers,) = found.read().values()
    assert set(numbers) == {"xid_errors", "last_xid"}  # which say why
    gpus_file(nvml, HEALTHY_GPU)
    (numbers,) = found.read().values()
    assert numbers["utilization_percent"] == 97


def test_no_driver(nvml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAKE_NVML")
    assert Gpus().why_none == "NVML says: error 9"


def test_what_is_asked_for_is_in_nvidias_package() -> None:
    """Names of functions and numbers of fields, which the made-up one would never miss."""
    nvml = pytest.importorskip("pynvml")
    assert "data/nvml" not in nvml.__file__
    text = Path(gpus.__file__).read_text()
    names = set(re.findall(r"nvml\.(nvml\w+)", text))
    assert len(names) > 20
    assert [name for name in names if not hasattr(nvml, name)] == []
    fields = {
        "pcie_tx_bytes": ["PCIE_COUNT_TX_BYTES"], "pcie_rx_bytes": ["PCIE_COUNT_RX_BYTES"],
        "pcie_replays": ["PCIE_REPLAY_COUNTER"], "nvlink_tx_bytes": ["NVLINK_THROUGHPUT_DATA_TX"],
        "nvlink_rx_bytes": ["NVLINK_THROUGHPUT_DATA_RX"],
        "nvlink_errors": [
            f"NVLINK_{what}_ERROR_COUNT_TOTAL" for what in ("CRC_FLIT", "CRC_DATA", "REPLAY", "RECOVERY")
        ],
    }  # fmt: skip
    for name, constants in fields.items():
        numbers = [getattr(nvml, f"NVML_FI_DEV_{constant}") for constant in constants]
        assert [field for field, _ in gpus.FIELDS[name][0]] == numbers
    reasons = {
        "HW slowdown": "HwSlowdown", "SW thermal slowdown": "SwThermalSlowdown",
        "HW thermal slowdown": "HwThermalSlowdown", "HW power brake": "HwPowerBrakeSlowdown",
    }  # fmt: skip
    bits = {
        name: getattr(nvml, f"nvmlClocksThrottleReason{reason}") for name, reason in reasons.items()
    }
    assert {name: bit for bit, name in SLOWDOWNS.items()} == bits
    assert nvml.nvmlClocksThrottleReasonSwPowerCap == POWER_CAP


def test_nvidias_package_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = pytest.importorskip("pynvml")
    monkeypatch.setattr(nvml, "nvmlInit", lambda: (_ for _ in ()).throw(nvml.NVMLError(12)))
    assert Gpus().why_none == "NVML says: NVML Shared Library Not Found"


def test_pcie_capacity() -> None:
    assert pcie_capacity(5, 16) == 63_008_000_000
    assert pcie_capacity(99, 16) is None
    assert pcie_capacity(4, 0) is None


# ---- files ----
ABOUT = {"host": "a.b/c", "boot_id": "x", "pid": 7, "interval_ms": 1000, "notes": ["n"]}


def sample(at: int, **numbers: int) -> Sample:
    return Sample(
        at * 10**9, at * 10**9 + 5, {THE: {"cpus": 2, "oom_kills": at}, nic("eth0"): numbers}
    )


def test_written_and_read(tmp_path: Path) -> None:
    writer = SampleWriter(tmp_path, ABOUT)
    writer.write(sample(1, rx_bytes=5))
    writer.write(sample(2, rx_bytes=6, tx_bytes=1))  # a counter more
    writer.write(Sample(3 * 10**9, 3, {THE: {"cpus": 2}, gpu(0): {"power_mw": 9}}))  # eth0 is gone
    writer.close()
    (path,) = sample_files_in(tmp_path)
    assert path.name == "system.a_b_c.7.0.jsonl"
    assert path.stat().st_mode & 0o777 == 0o600
    journal = read_sample_file(path)
    assert (journal.host, journal.boot_id, journal.notes) == ("a.b/c", "x", ("n",))
    assert (journal.interval_ns, journal.damaged, journal.samples) == (10**9, 0, 3)
    first, second, third = journal.spans
    assert list(first.values) == [2, 1, 5]
    assert list(second.values) == [2, 2, 6, 1]
    assert list(third.values) == [2, NOT_THERE, NOT_THERE, NOT_THERE, 9]
    assert third.layout[-1][0].facts["pcie_width_most"] == 16


def test_a_torn_end_and_every_beginning(tmp_path: Path) -> None:
    writer = SampleWriter(tmp_path, ABOUT)
    for at in range(1, 6):
        writer.write(sample(at, rx_bytes=at))
    writer.close()
    data = writer.path(0).read_bytes()
    for length in range(0, len(data), 7):
        writer.path(0).write_bytes(data[:length])
        journal = read_sample_file(writer.path(0))
        assert journal.damaged == 0
        assert journal.samples == max(data[:length].count(b"\n") - 2, 0)


HOSTILE = (
    b"", b"{", b"[]", b"[1]", b"null", b"7", b'"x"', b"[" * 5000, b'{"devices": 7}',
    b'{"devices": [{"kind": [], "counters": {}}]}', b'{"devices": [{"counters": [7]}]}', b"\xff\xfe",
    b'{"devices": [' + b"1," * 600 + b"1]}", b"[1,2,3,4,5,6,7]", b'[1,2,"x",null,null]',
    b"[-1,5,1,1,1]", b"[1.5,5,1,1,1]", b"[true,5,1,1,1]", b"[1,2,1e400,1,1]", b"[1,2,{},1,1]",
    b"[99999999999999999999999,5,1,1,1]", b"x" * (2 << 20), b"[" + b"9" * 900_000 + b"]", b'{"samples_lost": "many"}',
)  # fmt: skip


def test_hostile_lines_are_counted_and_harmless(tmp_path: Path) -> None:
    path = tmp_path / "system.h.1.0.jsonl"
    writer = SampleWriter(tmp_path, ABOUT)
    writer.write(sample(1, rx_bytes=5))
    writer.close()
    head = writer.path(0).read_bytes()
    writer.path(0).unlink()
    for line in HOSTILE:
        path.write_bytes(head + line + b"\n" + head.splitlines()[-1] + b"\n")
        journal = read_sample_file(path, most_samples=10**9)
        assert journal.samples == 2 or b"devices" in line, line[:40]
    # Values out of range are no values; all that is left of a hostile header is short.
    path.write_bytes(head + b"[5,5,-3,99999999999999999999,7]\n")
    assert list(read_sample_file(path).spans[0].values)[-3:] == [NOT_THERE, NOT_THERE, 7]
    about = {"ncclscope": "system", "version": 1, "host": "h" * 10**5, "notes": ["n" * 10**3] * 99}
    path.write_bytes(json.dumps(about).encode() + b"\n")
    journal = read_sample_file(path)
    assert len(journal.host) == 128
    assert len(journal.notes) == 8
    path.write_bytes(head.replace(b'"version":1', b'"version":2'))
    assert read_sample_file(path).newer
    assert read_sample_file(path).samples == 0


def test_counters_of_a_file_have_an_end(tmp_path: Path) -> None:
    path = tmp_path / "system.h.1.0.jsonl"
    lines = [{"ncclscope": "system", "version": 1, "host": "h"}]
    for at in range(60):  # 100 counters more each, and a sample
        few = [{"kind": "nic", "name": f"eth{at}", "counters": [f"x{one}" for one in range(100)]}]
        lines += [{"devices": few}, [at + 1, at + 1, *range(100)]]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    journal = read_sample_file(path)
    assert (journal.samples, journal.damaged) == (40, 2 * 20)
    once = [{"kind": "nic", "name": "eth0", "counters": ["x"] * 500}] * 10
    path.write_text("".join(json.dumps(line) + "\n" for line in [lines[0], {"devices": once}]))
    assert read_sample_file(path).damaged == 1


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("{}")
    (tmp_path / "system.h.1.0.jsonl").symlink_to(tmp_path / "other")
    assert sample_files_in(tmp_path) == []
    assert sample_files_in(tmp_path / "nowhere") == []


def test_two_files_are_kept(tmp_path: Path) -> None:
    writer = SampleWriter(tmp_path, ABOUT, most_bytes=2000)
    for at in range(1, 201):
        writer.write(sample(at, rx_bytes=at))
    writer.close()
    paths = sample_files_in(tmp_path)
    assert len(paths) == 2
    assert all(path.stat().st_size < 2200 for path in paths)
    journals = [read_sample_file(path) for path in paths]
    newest = max(journals, key=lambda one: one.spans[0].monotonic_ns[0])
    assert newest.spans[-1].monotonic_ns[-1] == 200 * 10**9
    assert newest.deleted + sum(journal.samples for journal in journals) == 200


def test_a_process_of_the_same_id_begins_a_file_of_its_own(tmp_path: Path) -> None:
    for boot in ("first", "second"):
        writer = SampleWriter(tmp_path, ABOUT | {"boot_id": boot})
        writer.write(sample(1, rx_bytes=1))
        writer.close()
    assert [read_sample_file(path).boot_id for path in sample_files_in(tmp_path)] == [
        "first",
        "second",
    ]


def test_samplers_with_the_same_host_and_id_keep_apart(tmp_path: Path) -> None:
    """Two containers under one host name, on a shared directory, at the same time."""
    one, other = (SampleWriter(tmp_path, ABOUT, most_bytes=2000) for _ in range(2))
    for at in range(1, 201):
        one.write(sample(at, rx_bytes=at))
        other.write(sample(at, rx_bytes=at + 10**6))
    one.close()
    other.close()
    journals = [read_sample_file(path) for path in sample_files_in(tmp_path)]
    assert len(journals) == 4
    assert len({journal.sampler for journal in journals}) == 2
    for journal in journals:
        received = {taken.numbers[nic("eth0")]["rx_bytes"] for taken in journal.in_order()}
        assert len({value > 10**6 for value in received}) == 1
        assert journal.damaged == 0


def test_a_disk_that_is_full_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SampleWriter(tmp_path, ABOUT)
    real = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda fd, data: real(fd, data[:9]))
        for at in (1, 2, 3):
            with pytest.raises(OSError, match="full"):
                writer.write(sample(at, rx_bytes=at))
    writer.write(sample(4, rx_bytes=4))
    writer.close()
    (journal,) = [read_sample_file(path) for path in sample_files_in(tmp_path)]
    assert (journal.host, journal.samples, journal.lost) == ("a.b/c", 1, 3)


def test_a_long_file_is_thinned(tmp_path: Path) -> None:
    writer = SampleWriter(tmp_path, ABOUT)
    for at in range(1, 1001):
        writer.write(sample(at, rx_bytes=at))
    writer.close()
    journal = read_sample_file(writer.path(0), most_samples=100)
    assert 60 <= journal.samples <= 100
    assert journal.damaged == 0


def test_a_full_disk_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SampleWriter(tmp_path, ABOUT)
    writer.write(sample(1, rx_bytes=1))
    real = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda fd, data: real(fd, data[:9]))
        for at in (2, 3):
            with pytest.raises(OSError, match="full"):
                writer.write(sample(at, rx_bytes=at))
    writer.write(sample(4, rx_bytes=4))
    writer.write(sample(5, rx_bytes=5))
    writer.close()
    journal = read_sample_file(writer.path(0))
    assert [t // 10**9 for t in journal.spans[0].monotonic_ns] == [1, 4, 5]
    assert journal.lost == 2
    assert writer.path(0).read_text().count("samples_lost") == 1
    assert journal.damaged == 2  # what was left of them


def test_followed_while_it_grows(tmp_path: Path) -> None:
    writer = SampleWriter(tmp_path, ABOUT)
    followed = SampleTail(writer.path(0))
    assert followed.read() is None
    for at in (1, 2):
        writer.write(sample(at, rx_bytes=at))
        found = followed.read()
        assert found is not None
        assert found.numbers[nic("eth0")] == {"rx_bytes": at}
    with writer.path(0).open("ab") as file:
        file.write(b"[3000000000,")
    assert followed.read() == found
    writer.close()


def test_the_page_names_every_counter() -> None:
    page = (ROOT / "docs" / "format.md").read_text()
    assert FILES.replace("*", "<host>.<pid>.<number>", 1) in page
    for kind, counters in COUNTERS.items():
        for counter in counters:
            assert f"| {kind} | `{counter.name}` | {counter.kind} | {counter.meaning} |" in page
