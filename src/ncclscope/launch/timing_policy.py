"""Which GPU timing the recorder would choose: as native/src/timing_policy.c does when a job starts.

A test compares both, reasons included.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ncclscope.launch.environment import Settings, gpu_timing_of
from ncclscope.launch.setting_checks import is_understood
from ncclscope.nccl.events import BIT, FIRST_WITH_CALLS, FIRST_WITH_STAMPS, events_of

_SPELLINGS = {"0": "off", "1": "kernel"}


@dataclass(frozen=True, slots=True)
class ExpectedTiming:
    """The timing in force, and why it is that one; "": it is what was asked for."""

    in_force: str  # kernel, sampled or off
    reason: str = ""


def settings_in(environment: Mapping[str, str], mode: str = "profile") -> Settings:
    """The settings of a job that starts with these variables. What the recorder does not understand
    counts as not set, as there.
    """
    known = {name: value for name, value in environment.items() if is_understood(name, value)}
    timing = known.get("NCCLSCOPE_GPU_TIMING")
    return Settings(
        directory=Path(known.get("NCCLSCOPE_DIR", ".")),
        mode=known.get("NCCLSCOPE_MODE", mode),
        events=known.get("NCCLSCOPE_EVENTS"),
        gpu_timing=_SPELLINGS.get(timing, timing) if timing else None,
    )


def with_variables(settings: Settings, environment: Mapping[str, str]) -> Settings:
    """Settings with those of the variables that `run` passes on where no option was given."""
    passed_on = settings_in(environment)
    return replace(
        settings,
        events=settings.events if settings.events is not None else passed_on.events,
        gpu_timing=settings.gpu_timing or passed_on.gpu_timing,
    )


def expected_timing(settings: Settings, interface: int, driver_lacks: str) -> ExpectedTiming:
    """The timing with an interface of NCCL. `driver_lacks` is what CUDA events need and the process
    does not have: libcuda, or one of its functions.
    """
    timing = gpu_timing_of(settings)
    speaks = f"NCCL's profiler interface v{interface}"
    if timing == "off":
        return ExpectedTiming(timing, _reason(settings))
    if not events_of(interface) & BIT["KernelCh"]:
        return ExpectedTiming("off", f"{speaks} reports no kernels")
    if timing == "kernel":
        has_times = interface >= FIRST_WITH_STAMPS
        reason = _reason(settings) if has_times else f"{speaks} gives kernels no GPU times"
        return ExpectedTiming(timing, reason)
    without = "kernel" if _mask(settings) & BIT["KernelCh"] else "off"
    if interface < FIRST_WITH_STAMPS:
        return ExpectedTiming(without, f"{speaks} has no GPU times to sample")
    if interface < FIRST_WITH_CALLS:
        return ExpectedTiming(without, f"{speaks} reports no launches to sample")
    if driver_lacks:
        return ExpectedTiming(without, f"no CUDA events: {driver_lacks} is missing")
    return ExpectedTiming(timing, _reason(settings))


def _mask(settings: Settings) -> int:
    """The events that somebody listed."""
    return int(settings.events, 0) if settings.events is not None else 0


def _reason(settings: Settings) -> str:
    """Why `auto` is what it is."""
    if settings.gpu_timing not in (None, "auto"):
        return ""
    if settings.events is not None:
        return "NCCLSCOPE_EVENTS lists the events"
    if settings.mode == "profile":
        return "profile mode samples, so that the job is not slowed down"
    return f"{settings.mode} mode is for single operations"
