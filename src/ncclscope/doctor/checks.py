"""The checks of `ncclscope doctor`: each examines one thing and returns a `Check`. Known
defects of releases are in nccl/releases.py."""

import os
import platform
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ncclscope.capture.contents import contents_of_capture, metadata_of_process
from ncclscope.capture.timing_changes import off_in_words
from ncclscope.demo.play import bundled_transcripts, play
from ncclscope.doctor.libraries import Library
from ncclscope.errors import NcclscopeError
from ncclscope.humanize import printable
from ncclscope.launch.environment import Settings
from ncclscope.launch.timing_policy import ExpectedTiming, expected_timing, settings_in
from ncclscope.native import LONGEST_PLUGIN_PATH
from ncclscope.nccl.events import INTERFACES, NEWEST_INTERFACE, OLDEST_INTERFACE
from ncclscope.nccl.gpu_timing import kernel_sentence
from ncclscope.nccl.releases import (
    OLDEST_RELEASE,
    Release,
    interface_of,
    known_defects,
    text_of,
)

FINE, NOTE, PROBLEM = "fine", "note", "problem"
_MACHINES = {62: "x86_64", 183: "aarch64"}  # ELF
_MINIMUM_SHM_BYTES = 512 << 20
_EVENTS_OF_TRANSCRIPT = 1094  # of rank 0 of the bundled job


@dataclass(frozen=True, slots=True)
class Check:
    """What one check saw, whether that is fine, and what to do if not."""

    name: str
    state: str  # FINE, NOTE or PROBLEM
    text: str
    remedy: str = ""
    details: dict[str, object] = field(default_factory=dict)


# ---- NCCL ----
def check_library(libraries: list[Library]) -> list[Check]:
    """Which NCCL a job will load, its profiler interface, and the known defects of its release."""
    if not libraries:
        text = (
            "no libnccl found: not in LD_LIBRARY_PATH, Python packages, conda or the linker cache"
        )
        remedy = "Run doctor in the environment of the job, or with --pid of one of its ranks"
        return [Check("nccl", NOTE, text, remedy)]
    checks = []
    first = libraries[0]
    for number, library in enumerate(libraries):
        release = text_of(library.release) if library.release else "unknown release"
        text = f"{release} in {library.path} ({library.origin})"
        if number:
            text = f"also {text}"
        details: dict[str, object] = {"path": str(library.path), "release": release}
        checks.append(Check("nccl", FINE if library.release else NOTE, text, "", details))
    if first.release is None:
        return checks
    interface = interface_of(first.release)
    if interface is None:
        text = f"NCCL {text_of(first.release)} has no profiler interface"
        remedy = f"Use NCCL {text_of(OLDEST_RELEASE)} or later"
        checks.append(Check("interface", PROBLEM, text, remedy))
        return checks
    text = f"NCCL {text_of(first.release)} speaks profiler interface v{interface}"
    checks.append(Check("interface", FINE, text, "", {"interface": interface}))
    for defect in known_defects(first.release):
        checks.append(Check("known", NOTE, f"NCCL {text_of(first.release)}: {defect}"))
    return checks


# ---- GPU timing ----
def missing_driver() -> str:
    """What sampling needs and a process here does not find: the driver's library; "" if it does."""
    # In another process: a library of a driver does more than to be there.
    code = "import ctypes; ctypes.CDLL('libcuda.so.1')"
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, capture_output=True, timeout=60, check=False)
    return "libcuda" if loaded.returncode else ""


def check_gpu_timing(
    environment: Mapping[str, str], release: Release | None, driver_lacks: str
) -> Check:
    """Which GPU timing a job with these variables would have and why, and one of `run`."""
    interface = interface_of(release) if release else NEWEST_INTERFACE
    if interface is None:
        return Check("gpu timing", NOTE, "none, as this NCCL has no profiler interface")
    settings = settings_in(environment)
    alone, with_run = (
        expected_timing(chosen, interface, driver_lacks)
        for chosen in (settings, replace(settings, mode="trace"))
    )
    of = f"NCCL {text_of(release)}" if release else "NCCL 2.28 or later"
    text = f"would be {alone.in_force} with {of}: {_why(alone, environment)}"
    lines = []
    if with_run != alone:
        why = _why(with_run, environment)
        lines.append(f"with `ncclscope run`, in mode trace, it would be {with_run.in_force}: {why}")
    if "kernel" in (alone.in_force, with_run.in_force):
        cost = kernel_sentence(release)
        lines.append(f"{cost[0].upper()}{cost[1:]}")
    details: dict[str, object] = {
        "timing": alone.in_force,
        "reason": alone.reason,
        "timing_of_run": with_run.in_force,
    }
    return Check("gpu timing", FINE, text, ". ".join(lines), details)


def check_gpu_timing_of(pid: int) -> Check | None:
    """Which GPU timing has been in force in a running process, and when; None where it is not
    recorded, or where its capture cannot be found.
    """
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        named = [v.partition(b"=")[2] for v in variables if v.startswith(b"NCCLSCOPE_DIR=")]
        folders = [f for name in named for f in Path(os.fsdecode(name)).glob(f"*.{pid}.*")]
    except (OSError, ValueError):
        return None
    recorded = [metadata_of_process(folder) for folder in folders]
    timed = [one for one in recorded if one.identity.get("gpu_timing.in_force")]
    if not timed:
        return None
    identity, changes = timed[-1].identity, timed[-1].timing_changes
    began = identity["gpu_timing.in_force"]
    now = changes[-1][0] if changes else began
    why = identity.get("gpu_timing.reason") or f"asked for {identity.get('gpu_timing.asked', '')}"
    text = f"process {pid} has {now}; it began with {began}: {why}"
    periods = off_in_words(changes)
    remedy = f"switched {periods} of its life, by `ncclscope ctl --gpu-timing`" if periods else ""
    details: dict[str, object] = {
        "timing": now,
        "timing_at_start": began,
        "changes": [{"timing": timing, "after_s": after} for timing, after in changes],
    }
    return Check("gpu timing", FINE, printable(text), remedy, details)


def _why(timing: ExpectedTiming, environment: Mapping[str, str]) -> str:
    return timing.reason or f"NCCLSCOPE_GPU_TIMING={environment['NCCLSCOPE_GPU_TIMING']}"


# ---- the plugin ----
def _elf_machine(path: Path) -> str:
    head = path.read_bytes()[:20]
    if head[:4] != b"\x7fELF":
        return "no ELF file"
    return _MACHINES.get(struct.unpack_from("<H", head, 18)[0], "another architecture")


def _needed_glibc(path: Path) -> tuple[int, int]:
    versions = re.findall(rb"GLIBC_(\d+)\.(\d+)", path.read_bytes())
    return max(((int(major), int(minor)) for major, minor in versions), default=(0, 0))


def system_glibc() -> tuple[int, int]:
    """The C library's release."""
    version = platform.libc_ver()[1].split(".")
    return (int(version[0]), int(version[1])) if len(version) >= 2 else (0, 0)


def _load_failure(plugin: Path) -> str:
    """Why the plugin does not load as NCCL loads it; empty when it does."""
    # In another process: a damaged library can crash the one that loads it.
    code = (
        "import ctypes, os, sys\n"
        "library = ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | os.RTLD_LOCAL)\n"
        f"for version in {tuple(INTERFACES)}: getattr(library, f'ncclProfiler_v{{version}}')\n"
    )
    command = [sys.executable, "-c", code, str(plugin)]
    loaded = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if loaded.returncode < 0:
        return f"loading it ends with signal {-loaded.returncode}; the file is damaged"
    return loaded.stderr.strip().rpartition("\n")[2] if loaded.returncode else ""


def check_plugin_file(plugin: Path, glibc: tuple[int, int] | None = None) -> Check:
    """Whether the plugin can be loaded here, and if not, why."""
    glibc = glibc or system_glibc()
    machine, here = _elf_machine(plugin), platform.machine()
    if machine != here:
        text = f"{plugin} is for {machine}, this machine is {here}"
        return Check("plugin", PROBLEM, text, "Install ncclscope on this machine, or its wheel")
    needed = _needed_glibc(plugin)
    if needed > glibc:
        text = (
            f"{plugin} needs glibc {needed[0]}.{needed[1]}, this system has {glibc[0]}.{glibc[1]}"
        )
        remedy = "Install the manylinux wheel (glibc 2.17 and later), or build it on this system"
        return Check("plugin", PROBLEM, text, remedy)
    if len(str(plugin)) > LONGEST_PLUGIN_PATH:
        text = f"its path has {len(str(plugin))} characters; NCCL cuts at {LONGEST_PLUGIN_PATH}"
        remedy = (
            "`ncclscope run` makes a link in the capture; otherwise make a shorter link yourself"
        )
        return Check("plugin", PROBLEM, text, remedy)
    failure = _load_failure(plugin)
    if failure:
        return Check("plugin", PROBLEM, f"it does not load: {failure}", "Reinstall ncclscope")
    versions = f"interfaces v{OLDEST_INTERFACE} to v{NEWEST_INTERFACE}"
    return Check("plugin", FINE, f"loads, {versions}: {plugin}", "", {"path": str(plugin)})


def _settings_in(path: Path) -> dict[str, str]:
    """NAME=VALUE lines of one of NCCL's configuration files."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines if not line.startswith("#"))
    return {name: value for name, equals, value in pairs if equals}


def effective_plugin(
    environment: Mapping[str, str], etc: Path = Path("/etc/nccl.conf")
) -> tuple[str, str]:
    """The value NCCL will use for NCCL_PROFILER_PLUGIN, and where it comes from.

    As NCCL does it: configuration files count where the environment has no value.
    """
    if environment.get("NCCL_PROFILER_PLUGIN"):
        return environment["NCCL_PROFILER_PLUGIN"], "the environment"
    user = Path(environment.get("NCCL_CONF_FILE") or Path.home() / ".nccl.conf")
    for path in (user, etc):
        value = _settings_in(path).get("NCCL_PROFILER_PLUGIN")
        if value:
            return value, str(path)
    return "", ""


def check_slot(
    environment: Mapping[str, str], plugin: Path, etc: Path = Path("/etc/nccl.conf")
) -> Check:
    """Which plugin NCCL loads when a job is started without `ncclscope run`: it loads only one."""
    value, origin = effective_plugin(environment, etc)
    run = "`ncclscope run` sets it for the job"
    if not value:
        text = "NCCL_PROFILER_PLUGIN is not set"
        return Check("slot", FINE, text, f'{run}; or: eval "$(ncclscope env)"')
    if "STATIC_PLUGIN".startswith(value.upper()):
        text = f"{origin} sets NCCL_PROFILER_PLUGIN={value}: NCCL looks in the program itself"
        return Check("slot", PROBLEM, text, f"{run}; or unset it")
    if value.lower() == "none":
        text = f"{origin} switches profiler plugins off (NCCL_PROFILER_PLUGIN={value})"
        return Check("slot", PROBLEM, text, f"{run}; or unset it")
    if os.path.realpath(value) == os.path.realpath(plugin) or value == "ncclscope":
        return Check("slot", FINE, f"NCCL_PROFILER_PLUGIN is this plugin, by {origin}")
    text = f"{origin} gives the slot to another plugin: NCCL_PROFILER_PLUGIN={value}"
    remedy = f"{run}; to keep both, add NCCLSCOPE_CHAIN={value}"
    return Check("slot", PROBLEM, text, remedy)


# ---- the machine ----
def _gigabytes(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 1 << 30 else f"{count / 2**20:.0f} MiB"


def check_shared_memory(shm: Path = Path("/dev/shm")) -> Check:
    """Whether /dev/shm has room for arenas. Events in arenas survive SIGKILL."""
    try:
        volume = os.statvfs(shm)
    except OSError as error:
        text = f"{shm}: {error.strerror}; records go through private memory"
        return Check("shared memory", NOTE, text, "After SIGKILL the last 2 s will be missing")
    total, free = volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize
    details: dict[str, object] = {"total_bytes": total, "free_bytes": free}
    if not os.access(shm, os.W_OK | os.X_OK):
        text = f"{shm} cannot be written to; records go through private memory"
        remedy = "After SIGKILL the last 2 s will be missing"
        return Check("shared memory", NOTE, text, remedy, details)
    text = f"{shm} has {_gigabytes(total)}, {_gigabytes(free)} free"
    if total < _MINIMUM_SHM_BYTES:
        remedy = (
            "Too little to share with NCCL: records go through private memory, and after SIGKILL "
            "the last 2 s are missing. Containers: --shm-size=1g or --ipc=host"
        )
        return Check("shared memory", NOTE, text, remedy, details)
    return Check("shared memory", FINE, text, "", details)


def check_gpu() -> Check:
    """Which NVIDIA GPUs are visible."""
    try:
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
        names = [line.strip() for line in answer.stdout.splitlines() if answer.returncode == 0]
    except (OSError, subprocess.TimeoutExpired):
        names = []
    if not names and not list(Path("/dev").glob("nvidia[0-9]*")):
        text = "no NVIDIA GPU seen: captures can be read here, NCCL cannot run"
        return Check("gpu", NOTE, text)
    kinds = sorted(set(names))
    listed = ", ".join(f"{names.count(kind)} x {kind}" for kind in kinds) or "devices in /dev"
    return Check("gpu", FINE, listed, "", {"gpus": names})


def check_clock() -> Check:
    """Which clock the plugin reads; reading it is most of a callback's cost."""
    if platform.machine() == "aarch64":
        return Check("clock", FINE, "the architecture's counter")
    path = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    source = path.read_text().strip() if path.exists() else "unknown"
    if source == "tsc":
        return Check("clock", FINE, "the processor's time-stamp counter")
    text = f"the kernel uses {source}: callbacks take clock_gettime, about 15 ns more each"
    return Check("clock", NOTE, text)


def check_recording() -> Check:
    """Plays a real job's callbacks through the installed plugin and reads them back."""
    with tempfile.TemporaryDirectory(prefix="ncclscope-doctor-") as directory:
        capture = Path(directory) / "capture"
        try:
            codes = play(bundled_transcripts()[:1], Settings(capture, mode="full"))
        except (NcclscopeError, OSError) as error:
            cause = getattr(error, "strerror", None) or error
            return Check("self-test", PROBLEM, f"the player failed: {cause}", "Reinstall ncclscope")
        processes = contents_of_capture(capture)
    events = processes[0].events if processes else 0
    text = f"{events} events of a recorded job played and read back"
    if any(codes) or events != _EVENTS_OF_TRANSCRIPT or processes[0].dropped:
        remedy = (
            f"Expected {_EVENTS_OF_TRANSCRIPT} events and exit code 0, got exit code {max(codes)}; "
            "please report it"
        )
        return Check("self-test", PROBLEM, text, remedy)
    return Check("self-test", FINE, text)


def python_line() -> str:
    """The interpreter, for bug reports."""
    glibc = ".".join(map(str, system_glibc()))
    return f"Python {sys.version.split()[0]}, glibc {glibc}, {platform.machine()}"
