"""Whether settings are what the recorder understands, before a job of hours starts with others.

The recorder checks the same (native/src/config.c); where it does not understand a value, it uses
the default and leaves a note in the capture.
"""

import difflib
import re
from collections.abc import Callable, Mapping

from ncclscope.byte_sizes import recorder_size_in_bytes
from ncclscope.errors import UsageError
from ncclscope.launch.environment import Settings
from ncclscope.launch.setting_names import GPU_TIMINGS, TORCH_LEVELS
from ncclscope.nccl.events import MODES, NEWEST_INTERFACE, events_of

_MASK = re.compile(r"0[xX][0-9a-fA-F]+|0|[1-9]\d*")
_ALL_EVENTS = events_of(NEWEST_INTERFACE)
_MOST_BYTES = 1e15
_LONGEST_WAIT_S = 3600.0


def _check_size(text: str) -> str:
    size_bytes = recorder_size_in_bytes(text)
    if size_bytes is None:
        return "a number of bytes, with K, M or G: 64M"
    return "" if size_bytes <= _MOST_BYTES else "at most 931322G"


def _check_mask(text: str) -> str:
    fits = _MASK.fullmatch(text) and int(text, 0) <= _ALL_EVENTS
    return "" if fits else f"NCCL's event bits, at most {_ALL_EVENTS:#x}: 0xff4f"


def _check_seconds(text: str) -> str:
    try:
        fits = 0 <= float(text) <= _LONGEST_WAIT_S
    except ValueError:
        fits = False
    return "" if fits else f"seconds, 0 to {_LONGEST_WAIT_S:.0f}"


def _one_of(*words: str) -> Callable[[str], str]:
    return lambda text: "" if text in words else f"one of {', '.join(words)}"


def _anything(text: str) -> str:
    return ""


# By variable: a function that returns what a value must be, "" where it is that.
_VARIABLES: dict[str, Callable[[str], str]] = {
    "NCCLSCOPE_DIR": _anything,
    "NCCLSCOPE_MODE": _one_of(*MODES),
    "NCCLSCOPE_EVENTS": _check_mask,
    "NCCLSCOPE_GPU_TIMING": _one_of(*GPU_TIMINGS, "0", "1"),
    "NCCLSCOPE_GRAPH_MARKERS": _one_of("0", "1"),
    "NCCLSCOPE_ARENA": _check_size,
    "NCCLSCOPE_RING": _check_size,
    "NCCLSCOPE_DISK_LIMIT": _check_size,
    "NCCLSCOPE_EXIT_WAIT": _check_seconds,
    "NCCLSCOPE_CHAIN": _anything,  # it may exist on other hosts only; the recorder notes it
    "NCCLSCOPE_TORCH": _one_of("auto", "off", *TORCH_LEVELS),
    "NCCLSCOPE_RANGES": _anything,
    "NCCLSCOPE_DISABLE": _anything,
    "NCCLSCOPE_KERNELS_AT": _anything,  # the option has been checked
    "NCCLSCOPE_MEMORY_LIMIT": _check_size,  # of commands that read captures
}
# Of other parts of ncclscope: bench, the simulated NCCL, the empty plugin, tests, hooks of serve.
_OTHER_PREFIXES = tuple(f"NCCLSCOPE_{part}_" for part in ("BENCH", "SIM", "EMPTY", "POSED", "HOOK"))


def is_understood(name: str, value: str) -> bool:
    """Whether the recorder has that variable, and understands its value."""
    return bool(value) and name in _VARIABLES and not _VARIABLES[name](value)


def check_settings(settings: Settings) -> None:
    """Raises UsageError for an option that the recorder would not understand, or would ignore."""
    for option, name, value in (
        ("--events", "NCCLSCOPE_EVENTS", settings.events),
        ("--arena", "NCCLSCOPE_ARENA", settings.arena),
        ("--ring", "NCCLSCOPE_RING", settings.ring),
        ("--disk-limit", "NCCLSCOPE_DISK_LIMIT", settings.disk_limit),
        ("--chain", "NCCLSCOPE_CHAIN", settings.chain),
    ):
        wanted = _VARIABLES[name](value) if value is not None else ""
        if wanted or value == "":
            message = f"cannot use {option} {value or 'without a value'}"
            raise UsageError(message, f"Give {wanted or 'one'}")
    if settings.ring is not None and settings.mode == "profile":
        message = "cannot keep a ring in mode profile: it records no events"
        raise UsageError(message, "Use --mode trace or full, or leave --ring out")


def check_variables(environment: Mapping[str, str]) -> None:
    """Raises UsageError for a variable of the recorder that does not exist or has a wrong value."""
    for name, value in environment.items():
        if not name.startswith("NCCLSCOPE_") or not value or name.startswith(_OTHER_PREFIXES):
            continue
        if name not in _VARIABLES:
            similar = difflib.get_close_matches(name, _VARIABLES, 1)
            hint = f"Did you mean {similar[0]}?" if similar else "Unset it"
            raise UsageError(f"there is no variable {name}", hint)
        wanted = _VARIABLES[name](value)
        if wanted:
            raise UsageError(f"cannot use {name}={value}", f"Set it to {wanted}, or unset it")
