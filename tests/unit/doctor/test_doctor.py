"""What doctor sees, and what it says to do."""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from ncclscope.doctor import checks
from ncclscope.doctor.libraries import candidates, mapped_by, release_in
from ncclscope.native import plugin_path
from ncclscope.nccl.releases import interface_of, known_defects, parse_release
from tests.support.player import ncclscope


@pytest.mark.parametrize(
    ("release", "interface"),
    [
        ((2, 22, 3), None), ((2, 23, 4), 1), ((2, 25, 1), 2), ((2, 26, 5), 3), ((2, 27, 7), 4),
        ((2, 28, 9), 5), ((2, 30, 7), 6), ((2, 31, 2), 7), ((2, 32, 3), 7),
    ],
)  # fmt: skip
def test_interfaces(release: tuple[int, int, int], interface: int | None) -> None:
    assert interface_of(release) == interface


def test_known_defects() -> None:
    assert any("no GPU kernel times" in text for text in known_defects((2, 23, 4)))
    assert any("Broadcast shows as a call only" in text for text in known_defects((2, 30, 7)))
    assert not any("Broadcast" in text for text in known_defects((2, 28, 9)))
    assert any("after an AlltoAll" in text for text in known_defects((2, 28, 9)))
    assert any("after a Broadcast" in text for text in known_defects((2, 32, 3)))


def test_parse_release() -> None:
    assert parse_release("2.28.9+cuda13.0") == (2, 28, 9)
    assert parse_release("2.x") is None


def fake_nccl(path: Path, release: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        b"\x7fELF" + bytes(5000) + f"NCCL version {release}+cuda13.0\0".encode() + bytes(99)
    )
    return path


def test_libraries_are_read_not_loaded(tmp_path: Path) -> None:
    library = fake_nccl(tmp_path / "a" / "libnccl.so.2", "2.29.7")
    assert release_in(library) == (2, 29, 7)
    found = candidates({"LD_LIBRARY_PATH": f"{tmp_path}/none:{tmp_path}/a"})
    assert found[0].path == library
    assert found[0].origin == "LD_LIBRARY_PATH"
    empty = tmp_path / "b" / "libnccl.so.2"
    empty.parent.mkdir()
    empty.touch()
    assert release_in(empty) is None


def test_python_packages_come_before_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site-packages"
    wheel = fake_nccl(site / "nvidia" / "nccl" / "lib" / "libnccl.so.2", "2.28.9")
    monkeypatch.setattr(sys, "path", [str(site)])
    (first, *_) = candidates({})
    assert (first.path, first.release) == (wheel, (2, 28, 9))
    shutil.rmtree(site / "nvidia")
    static = fake_nccl(site / "torch" / "lib" / "libtorch_cuda.so", "2.21.5")
    (first, *_) = candidates({})
    assert (first.path, first.origin) == (static, "linked into PyTorch")


def test_the_library_of_a_running_process(tmp_path: Path) -> None:
    library = fake_nccl(tmp_path / "libnccl.so.2", "2.30.7")
    code = f"import mmap; f = open('{library}', 'rb'); m = mmap.mmap(f.fileno(), 0, access=1); print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        running.stdout.readline()
        (found,) = mapped_by(running.pid)
        running.communicate("\n")
    assert (found.path, found.release) == (library, (2, 30, 7))


def test_no_interface_is_a_problem() -> None:
    from ncclscope.doctor.libraries import Library

    found = checks.check_library([Library(Path("/x"), "here", (2, 21, 5))])
    assert found[-1].state == checks.PROBLEM
    assert "2.23.4 or later" in found[-1].remedy
    (nothing,) = checks.check_library([])
    assert nothing.state == checks.NOTE


@pytest.mark.parametrize(
    ("release", "variables", "driver_lacks", "words", "advice"),
    [
        ((2, 28, 9), {}, "", "sampled with NCCL 2.28.9: profile mode samples", "would be kernel"),
        ((2, 28, 9), {}, "libcuda", "off with NCCL 2.28.9: no CUDA events", "would be kernel"),
        ((2, 27, 7), {}, "", "off with NCCL 2.27.7", "--gpu-timing off avoids it"),
        ((2, 28, 9), {"NCCLSCOPE_MODE": "full"}, "", "kernel with", "--gpu-timing sampled avoids"),
        ((2, 28, 9), {"NCCLSCOPE_GPU_TIMING": "0"}, "", "off with NCCL 2.28.9: NCCLSCOPE_GPU", ""),
        ((2, 24, 3), {"NCCLSCOPE_GPU_TIMING": "kernel"}, "", "off with .* reports no kernels", ""),
        ((2, 28, 9), {"NCCLSCOPE_EVENTS": "0x2"}, "", "off with .* NCCLSCOPE_EVENTS lists", ""),
        (None, {}, "", "sampled with NCCL 2.28 or later: profile", "before NCCL 2.28"),
    ],
)
def test_the_gpu_timing_that_a_job_would_have(
    release: tuple[int, int, int] | None,
    variables: dict[str, str],
    driver_lacks: str,
    words: str,
    advice: str,
) -> None:
    check = checks.check_gpu_timing(variables, release, driver_lacks)
    assert check.state == checks.FINE
    assert re.match(f"would be {words}", check.text), check.text
    assert advice in check.remedy if advice else not check.remedy


def test_the_plugin_is_fine() -> None:
    assert checks.check_plugin_file(plugin_path()).state == checks.FINE


def test_a_plugin_for_another_architecture(tmp_path: Path) -> None:
    other = tmp_path / "plugin.so"
    data = bytearray(plugin_path().read_bytes())
    here = struct.unpack_from("<H", data, 18)[0]
    struct.pack_into("<H", data, 18, 183 if here == 62 else 62)
    other.write_bytes(data)
    check = checks.check_plugin_file(other)
    assert check.state == checks.PROBLEM
    assert f"this machine is {os.uname().machine}" in check.text
    other.write_text("no library at all")
    assert "no ELF file" in checks.check_plugin_file(other).text


def test_a_glibc_that_is_too_old() -> None:
    check = checks.check_plugin_file(plugin_path(), glibc=(2, 5))
    assert check.state == checks.PROBLEM
    assert "this system has 2.5" in check.text


def test_a_path_that_nccl_cuts(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 130) / ("e" * 120) / "plugin.so"
    deep.parent.mkdir(parents=True)
    shutil.copy(plugin_path(), deep)
    check = checks.check_plugin_file(deep)
    assert check.state == checks.PROBLEM
    assert "NCCL cuts at 254" in check.text


def test_a_broken_plugin(tmp_path: Path) -> None:
    broken = tmp_path / "plugin.so"
    for size in (9000, 60_000):
        broken.write_bytes(plugin_path().read_bytes()[:size])
        assert "does not load" in checks.check_plugin_file(broken).text


@pytest.mark.parametrize(
    ("value", "state", "words"),
    [
        ("", checks.FINE, "is not set"),
        ("ncclscope", checks.FINE, "is this plugin"),
        ("STATIC_PLUGIN", checks.PROBLEM, "looks in the program itself"),
        ("static", checks.PROBLEM, "looks in the program itself"),
        ("none", checks.PROBLEM, "switches profiler plugins off"),
        ("/opt/inspector.so", checks.PROBLEM, "another plugin"),
    ],
)
def test_the_slot(value: str, state: str, words: str, tmp_path: Path) -> None:
    check = checks.check_slot(
        {"NCCL_PROFILER_PLUGIN": value, "NCCL_CONF_FILE": "/none"}, plugin_path(), tmp_path / "x"
    )
    assert check.state == state
    assert words in check.text


def test_configuration_files_fill_in_what_is_not_set(tmp_path: Path) -> None:
    etc, user = tmp_path / "nccl.conf", tmp_path / "user.conf"
    etc.write_text("# site\nNCCL_DEBUG=WARN\nNCCL_PROFILER_PLUGIN=/opt/site.so\n")
    environment = {"NCCL_CONF_FILE": str(user)}
    check = checks.check_slot(environment, plugin_path(), etc)
    assert check.state == checks.PROBLEM
    assert f"{etc} gives the slot to another plugin" in check.text
    assert "NCCLSCOPE_CHAIN=/opt/site.so" in check.remedy
    user.write_text("NCCL_PROFILER_PLUGIN=ncclscope\n")
    assert checks.check_slot(environment, plugin_path(), etc).state == checks.FINE
    both = environment | {"NCCL_PROFILER_PLUGIN": str(plugin_path())}
    assert checks.effective_plugin(both, etc) == (str(plugin_path()), "the environment")


def test_shared_memory(tmp_path: Path) -> None:
    assert checks.check_shared_memory(tmp_path / "none").state == checks.NOTE
    assert checks.check_shared_memory(Path("/dev/shm")).details["total_bytes"]


def test_shared_memory_that_is_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.os, "access", lambda *_: False)  # a mount needs root
    check = checks.check_shared_memory(Path("/dev/shm"))
    assert check.state == checks.NOTE
    assert "cannot be written to" in check.text


def test_doctor_says_ready() -> None:
    printed = ncclscope("doctor", env={**os.environ, "NCCL_PROFILER_PLUGIN": ""})
    assert printed.returncode == 0, printed.stdout
    assert "1094 events of a recorded job played and read back" in printed.stdout
    assert "gpu timing     would be " in printed.stdout  # with NCCL or without
    assert "ready" in printed.stdout.splitlines()[-1]
    assert "Next: " in printed.stdout.splitlines()[-1]


def test_doctor_in_json_names_the_problem() -> None:
    printed = ncclscope(
        "doctor", "--json", env={**os.environ, "NCCL_PROFILER_PLUGIN": "/opt/other.so"}
    )
    assert printed.returncode == 1
    answer = json.loads(printed.stdout)
    assert answer["ok"] is False
    assert answer["verdict"] == "NCCL would not be recorded here"
    assert "ncclscope run" in answer["next"]
    assert {check["name"] for check in answer["checks"]} >= {
        "plugin",
        "self-test",
        "slot",
        "shared memory",
    }


def test_doctor_of_a_process_that_is_not_there() -> None:
    printed = ncclscope("doctor", "--pid", "999999999")
    assert printed.returncode == 2
    assert "cannot look at process 999999999" in printed.stderr
