"""The environment variables that switch recording on, made from settings."""

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ncclscope import launchers
from ncclscope.errors import UsageError
from ncclscope.native import LONGEST_PLUGIN_PATH
from ncclscope.nccl.events import BIT, GPU_TIMING_EVENTS, MODE_EVENTS, SAMPLING_EVENTS
from ncclscope.private_directory import make_private_directory

NVTX_VARIABLE = "NVTX_INJECTION64_PATH"  # of the one library that gets a process's NVTX calls


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user chose; None leaves the plugin's own default."""

    directory: Path  # literally: a % in its name is part of the name
    mode: str = "trace"
    events: str | None = None
    arena: str | None = None
    ring: str | None = None
    chain: str | None = None
    disk_limit: str | None = None
    gpu_timing: str | None = None  # kernel, sampled, off or auto
    nvtx: bool = False  # NVTX ranges are recorded
    torch: str | None = None  # off, steps or modules: what PyTorch is asked to say
    kernels_at: str | None = None  # STEP or STEP:STEPS whose CUDA kernels are taken
    pattern: str | None = None  # for the plugin to expand (%h, %p, %r), instead of the directory


def _process_start_s(pid: int) -> float:
    """When a process started, in whole seconds: every rank must compute the same value."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        lines = Path("/proc/stat").read_text().splitlines()
        booted = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
    except (OSError, IndexError, ValueError, StopIteration):
        return time.time()
    return booted + int(fields[19]) // os.sysconf("SC_CLK_TCK")


def default_capture_name(environment: Mapping[str, str]) -> str:
    """A name that all ranks of a job agree on: the job's id, else when its launcher started."""
    for name in launchers.JOB_VARIABLES:
        job = environment.get(name, "")
        if job and job != "none":  # torchrun's run id unless the user gave one
            return f"ncclscope-{job[:100].replace('/', '_')}"
    started = time.time()
    if launchers.global_rank(environment) is not None:
        started = _process_start_s(os.getppid())
    return time.strftime("ncclscope-%Y%m%d-%H%M%S", time.localtime(started))


def without_placeholders(path: Path | str) -> str:
    """A path with % escaped, so that neither the plugin nor NCCL expands anything in it."""
    return str(path).replace("%", "%%")


def placeholders_in(name: str) -> list[str]:
    """Which of %h, %p and %r the plugin would expand in a name."""
    return sorted({sign for sign in re.findall("%.", name) if sign in ("%h", "%p", "%r")})


def make_capture(directory: Path) -> None:
    """Creates a capture's directory, for files that must be in it before the plugin starts."""
    try:
        make_private_directory(directory)
    except OSError as error:
        message = f"cannot create {directory}: {error.strerror}"
        raise UsageError(message, "Choose another directory with -o") from None


# File systems of the kernel, in which even root cannot make a file.
_WITHOUT_FILES = (
    "proc", "sysfs", "devpts", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "pstore",
)  # fmt: skip


def _file_system(path: Path) -> str:
    """The type of the file system that a path lies in; "" where that is not known."""
    try:
        lines = Path("/proc/self/mounts").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    kinds = {fields[1]: fields[2] for fields in map(str.split, lines) if len(fields) > 2}
    real = Path(os.path.realpath(path))
    places = (real, *real.parents)
    return next((kinds[str(place)] for place in places if str(place) in kinds), "")


def why_not_writable(directory: Path) -> str:
    """Why this host cannot write into a capture; empty if nothing speaks against it.

    Nothing is created to find out: a job that never calls NCCL leaves no capture behind.
    """
    nearest = next(path for path in (directory, *directory.parents) if os.path.lexists(path))
    if not nearest.is_dir():
        return f"{nearest} is no directory"
    kind = _file_system(nearest)
    if kind in _WITHOUT_FILES:
        return f"{nearest} is a {kind} file system, which holds no files"
    if os.statvfs(nearest).f_flag & os.ST_RDONLY:
        return f"{nearest} is read-only"
    return "" if os.access(nearest, os.W_OK | os.X_OK) else f"{nearest} cannot be written to"


def reachable_plugin(plugin: Path, directory: Path) -> Path:
    """A path of the plugin that is short enough for NCCL, if need be a link in the capture."""
    if len(str(plugin)) <= LONGEST_PLUGIN_PATH:
        return plugin
    link = directory / "plugin.so"
    if len(str(link)) > LONGEST_PLUGIN_PATH:
        raise UsageError(
            f"cannot use {plugin}: NCCL cuts plugin paths at {LONGEST_PLUGIN_PATH} characters",
            "Choose a capture with a shorter path (-o DIR); it will hold a link to the plugin",
        )
    make_capture(directory)
    if link.exists() and not link.is_symlink():
        message = f"cannot put a link into {directory}: plugin.so exists"
        raise UsageError(message, "Choose another directory with -o")
    link.unlink(missing_ok=True)
    link.symlink_to(plugin)
    return link


def recording_variables(settings: Settings, plugin: Path) -> dict[str, str]:
    """The variables to add to a rank's environment."""
    variables = {
        "NCCL_PROFILER_PLUGIN": str(plugin),
        "NCCLSCOPE_DIR": settings.pattern or without_placeholders(settings.directory),
        "NCCLSCOPE_MODE": settings.mode,
    }
    for name, value in (
        ("NCCLSCOPE_EVENTS", settings.events),
        ("NCCLSCOPE_ARENA", settings.arena),
        ("NCCLSCOPE_RING", settings.ring),
        ("NCCLSCOPE_CHAIN", settings.chain),
        ("NCCLSCOPE_DISK_LIMIT", settings.disk_limit),
        ("NCCLSCOPE_GPU_TIMING", settings.gpu_timing),
        ("NCCLSCOPE_TORCH", settings.torch),
        ("NCCLSCOPE_KERNELS_AT", settings.kernels_at),
        (NVTX_VARIABLE, str(plugin) if settings.nvtx else None),
    ):
        if value is not None:
            variables[name] = value
    return variables


def leave_nvtx_to_other(
    settings: Settings, environment: Mapping[str, str], plugin: Path
) -> tuple[Settings, str]:
    """Settings that ask for NVTX only if no other tool gets the job's NVTX calls already, and the
    sentence that says so; empty: there is none.
    """
    tool = environment.get(NVTX_VARIABLE, "")
    if not settings.nvtx or tool in ("", str(plugin)):
        return settings, ""
    sentence = f"ncclscope: leaves NVTX to {tool}, which {NVTX_VARIABLE} names already"
    return replace(settings, nvtx=False), sentence


def event_mask(settings: Settings) -> int:
    """The events that the plugin will ask NCCL for, where NCCL's interface has all of them."""
    if settings.events is not None:
        try:
            mask = int(settings.events, 0)
        except ValueError:
            message = f"{settings.events} is no mask of events"
            raise UsageError(message, "Give a number, as in 0xff4f") from None
    else:
        mask = MODE_EVENTS[settings.mode]
    timing = gpu_timing_of(settings)
    # Whoever lists KernelCh and asks for samples gets both.
    if timing == "kernel" or (timing == "sampled" and settings.events is not None):
        return mask | (SAMPLING_EVENTS if timing == "sampled" else 0)
    return mask & ~GPU_TIMING_EVENTS | (SAMPLING_EVENTS if timing == "sampled" else 0)


def gpu_timing_of(settings: Settings) -> str:
    """The GPU timing that these settings ask for: kernel, sampled or off. What is in force depends
    on NCCL's interface and the driver; the capture says.
    """
    if settings.gpu_timing not in (None, "auto"):
        return str(settings.gpu_timing)
    if settings.events is not None:
        return "kernel" if int(settings.events, 0) & BIT["KernelCh"] else "off"
    return "sampled" if settings.mode == "profile" else "kernel"


_DEBUG_LEVELS = ("VERSION", "WARN", "INFO", "ABORT", "TRACE", "ATTENTION")


def debug_variables(
    request: str, directory: Path, environment: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Variables that write NCCL's own log into the capture, and those the user has set already.

    `request` is LEVEL or LEVEL:SUBSYSTEMS. Variables of the user's environment keep their values.
    """
    level, _, subsystems = request.upper().partition(":")
    if level not in _DEBUG_LEVELS:
        message = f"NCCL has no debug level {level or 'of no name'}"
        raise UsageError(message, f"Levels are {', '.join(_DEBUG_LEVELS)}")
    log = f"{without_placeholders(directory)}/debug.%h.%p"
    variables = {"NCCL_DEBUG": level, "NCCL_DEBUG_FILE": log}
    if subsystems:
        variables["NCCL_DEBUG_SUBSYS"] = subsystems
    set_by_user = [name for name in variables if name in environment]
    added = {name: value for name, value in variables.items() if name not in set_by_user}
    return added, set_by_user
