"""Plugin, player, simulation and reader under Address-, UndefinedBehavior- and ThreadSanitizer: clean."""

import fcntl
import gzip
import os
import platform
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from ncclscope.nccl.events import INTERFACES
from tests.support.callback_script import every_event
from tests.support.exhaustive import sample
from tests.support.paths import C_SOURCES, ROOT
from tests.support.player import (
    INTERFACE_FOLDERS,
    TRANSCRIPTS,
    recording,
    transcript_files,
    write_transcript,
)
from tests.support.writer import from_transcript

SANITIZERS = {"asan": "address,undefined", "tsan": "thread"}
TARGETS = ("plugin", "player", "simulation", "run_test", "unit_tests")
LOOPS = ("arrays",)  # have no threads
# What compiles in half the time, or runs in half of it. Editable installs have warnings of -O2 as errors.
# Without optimisation, checks of what is inlined everywhere take five files 3 s each to compile, and 0.5 s as calls.
FLAGS = {"asan": "-O0 -g1 -DNDEBUG -Dalways_inline=unused", "tsan": "-O1 -g1 -DNDEBUG"}

# For tests of many processes: on aarch64 LeakSanitizer looks at 2^28 places where memory might lie,
# 4 s in each process. Tests of few look for leaks there, too.
MANY_PROCESSES = {"ASAN_OPTIONS": "detect_leaks=0"} if platform.machine() == "aarch64" else {}


def tool(name: str) -> str:
    """A build tool of this environment, else of the machine."""
    in_environment = Path(sys.executable).with_name(name)
    return str(in_environment) if in_environment.exists() else str(shutil.which(name))


@pytest.fixture(scope="session", params=SANITIZERS)
def build(request: pytest.FixtureRequest) -> Path:
    """A directory with plugin and player built with one sanitizer."""
    name = request.param
    directory = ROOT / "build" / name
    configure = [
        tool("cmake"), "-S", ROOT, "-B", directory, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
        f"-DCMAKE_C_FLAGS_RELWITHDEBINFO={FLAGS[name]}", f"-DNCCLSCOPE_SANITIZE={SANITIZERS[name]}",
        "-DNCCLSCOPE_WERROR=ON", "-DNCCLSCOPE_TESTS=ON",
        f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}",
    ]  # fmt: skip
    targets = [f"ncclscope_{target}" for target in TARGETS + LOOPS * (name == "asan")]
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the first of the test processes builds for all
        for command in (configure, [tool("cmake"), "--build", directory, "--target", *targets]):
            built = subprocess.run(command, capture_output=True, text=True, check=False)
            assert built.returncode == 0, built.stdout + built.stderr
    return directory


@pytest.fixture(scope="session")
def simulated_ranks(build: Path) -> Path:
    """A program that uses the simulated NCCL, built with the same sanitizer."""
    program, source = build / "simulated-ranks", C_SOURCES / "simulated_ranks.c"
    flags = [f"-fsanitize={SANITIZERS[build.name]}", "-fno-omit-frame-pointer", "-g", "-O1"]
    compiled = ["gcc", *flags, "-I", ROOT / "native/harness", "-o", program, source, "-ldl"]
    subprocess.run(compiled, check=True)
    return program


def run(build: Path, capture: Path, *arguments: object, **variables: str) -> str:
    plugin = str(build / "libnccl-profiler-ncclscope.so")
    env = recording(
        capture, **{"NCCL_PROFILER_PLUGIN": plugin, "TSAN_OPTIONS": "halt_on_error=1"} | variables
    )
    command = [build / "ncclscope-player", *map(str, arguments)]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    return ran.stdout


def test_c_unit_tests(build: Path) -> None:
    command = [tool("ctest"), "--test-dir", build, "--output-on-failure", "--no-tests=error"]
    env = os.environ | MANY_PROCESSES
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stdout[-4000:]


@pytest.mark.parametrize("mode", ["profile", "trace"])
def test_ranges(build: Path, tmp_path: Path, mode: str) -> None:
    out = run(build, tmp_path / "c", "ranges", "--calls", 100_000, NCCLSCOPE_MODE=mode)
    assert "made 100000 NVTX calls" in out


def test_transcripts(build: Path, tmp_path: Path) -> None:
    for end, folder in product(("finalize", "exit"), INTERFACE_FOLDERS):
        plain = tmp_path / f"{folder}.jsonl"
        plain.write_bytes(gzip.decompress(transcript_files(folder)[0].read_bytes()))
        variables = MANY_PROCESSES | {"NCCLSCOPE_ARENA": "16M"}
        run(build, tmp_path / f"{folder}-{end}", "play", plain, "--end", end, **variables)


@pytest.mark.parametrize("version", INTERFACES)
def test_every_interface(build: Path, version: int, tmp_path: Path) -> None:
    script = write_transcript(tmp_path / "script.jsonl", every_event(version).lines)
    run(build, tmp_path / "script", "play", script, "--times", 20, **MANY_PROCESSES)
    load = ["--version", version, "--threads", 4, "--generations", 3, "--collectives", 40]
    variables = MANY_PROCESSES | {"NCCLSCOPE_ARENA": "4M"}
    run(build, tmp_path / "load", "load", *load, "--comms", 3, **variables)
    fuzz = ["--version", version, "--calls", 150_000]
    run(build, tmp_path / "fuzz", "fuzz", *fuzz, **MANY_PROCESSES)


def test_rotation_and_recycling(build: Path, tmp_path: Path) -> None:
    variables = {"NCCLSCOPE_ARENA": "2M", "NCCLSCOPE_DISK_LIMIT": "4M"}
    run(build, tmp_path / "c", "load", "--threads", 3, "--collectives", 300, **variables)


SIMULATED = (  # release, hosts, GPU timing; every other one outside an exhaustive run
    ("2.28", 1, "sampled"), ("2.28", 1, "kernel"), ("2.28", 2, "kernel"), ("2.28", 2, "sampled"),
    ("2.31", 2, "sampled"), ("2.31", 2, "kernel"), ("2.32", 1, "kernel"), ("2.32", 1, "sampled"),
)  # fmt: skip


@pytest.mark.parametrize(("release", "hosts", "timing"), sample(SIMULATED, 2))
def test_simulation(
    build: Path, simulated_ranks: Path, release: str, hosts: int, timing: str, tmp_path: Path
) -> None:
    """Every function of the simulated NCCL, with the plugin."""
    scenario = tmp_path / "scenario"
    scenario.write_text("ranks_per_host = 1\n" if hosts > 1 else "")
    env = recording(
        tmp_path / "c",
        "profile" if timing == "sampled" and hosts == 1 else "full",
        NCCL_PROFILER_PLUGIN=str(build / "libnccl-profiler-ncclscope.so"),
        NCCLSCOPE_SIM_SCENARIO=str(scenario),
        NCCLSCOPE_SIM_RELEASE=release,
        NCCLSCOPE_GPU_TIMING=timing,
        TSAN_OPTIONS="halt_on_error=1",
    )
    library = build / "libncclscope-simulated-nccl.so"
    ran = subprocess.run(
        [simulated_ranks, library, "2"],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]


def test_reading(build: Path, tmp_path: Path) -> None:
    """Python itself is not watched, the loops that it reads captures with are."""
    if build.name != "asan":
        pytest.skip("the loops have no threads")
    captures = []
    for name in ("2.23.4-v1-2ranks", "2.28.9-v5-3ranks-hang", "2.31.2-v7-2ranks"):
        captures.append(tmp_path / name)
        from_transcript(TRANSCRIPTS / name, captures[-1])
    runtime = subprocess.run(
        ["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    )
    library = build / "libncclscope-arrays.so"
    env = os.environ | {"LD_PRELOAD": runtime.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0"}
    command = [sys.executable, "-m", "tests.support.sanitized_reading", library, *captures]
    ran = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert ran.stdout.endswith("read\n")
