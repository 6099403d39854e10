"""Counters of the host: CPU, memory and pressure, from /proc and the control group."""

import os
from collections.abc import Callable
from pathlib import Path

from ncclscope.system.counters import HOST, THE_HOST, Device

Numbers = dict[str, int]
_LONGEST_FILE = 1 << 20
_MS_PER_TICK = 1000 // (os.sysconf("SC_CLK_TCK") or 100)


def text_of(path: Path) -> str:
    """The text of a small file; "" if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_LONGEST_FILE).decode("utf-8", "replace")
    except OSError:
        return ""


def whole(word: str) -> int | None:
    """A word as a number; None if it is none, or negative, which means an unknown speed."""
    return int(word) if word.isascii() and word.isdigit() and len(word) < 20 else None


def number_in(path: Path) -> int | None:
    """The number that a file contains; None if it contains none."""
    return whole(text_of(path).strip())


def _words(text: str) -> dict[str, list[str]]:
    """The words of each line, by the first of them."""
    lines = (line.split() for line in text.splitlines())
    return {words[0].rstrip(":"): words[1:] for words in lines if words}


def _first(words: list[str] | None) -> int | None:
    return whole(words[0]) if words else None


def _cpu(root: Path) -> Numbers:
    text = text_of(root / "proc/stat")
    words = _words(text).get("cpu", ())
    times = [ticks for ticks in map(whole, words) if ticks is not None]
    if len(times) < 8:
        return {}
    user, nice, system, _, _, irq, softirq, steal = times[:8]
    return {
        "cpus": sum(line[3:4].isdigit() for line in text.splitlines() if line.startswith("cpu")),
        "cpu_busy_ms": (user + nice + system + irq + softirq) * _MS_PER_TICK,
        "cpu_steal_ms": steal * _MS_PER_TICK,
    }


def _memory(root: Path) -> Numbers:
    lines = _words(text_of(root / "proc/meminfo"))
    kib = {name: _first(words) for name, words in lines.items()}
    numbers = {}
    for counter, name in (("memory_available_bytes", "MemAvailable"), ("memory_bytes", "MemTotal")):
        if (size := kib.get(name)) is not None:
            numbers[counter] = size * 1024
    total, free = kib.get("SwapTotal"), kib.get("SwapFree")
    if total is not None and free is not None:
        numbers["swap_used_bytes"] = max(total - free, 0) * 1024
    return numbers


def _out_of_memory(root: Path) -> Numbers:
    kills = _first(_words(text_of(root / "proc/vmstat")).get("oom_kill"))
    return {} if kills is None else {"oom_kills": kills}


def _pressure(root: Path) -> Numbers:
    numbers = {}
    for resource, some, full in (
        ("cpu", "cpu_pressure_us", ""),
        ("memory", "memory_pressure_us", "memory_full_us"),
        ("io", "io_pressure_us", "io_full_us"),
    ):
        lines = _words(text_of(root / "proc/pressure" / resource))
        for counter, who in ((some, "some"), (full, "full")):
            words = lines.get(who, ())
            total = next((whole(w[6:]) for w in words if w.startswith("total=")), None)
            if counter and total is not None:
                numbers[counter] = total
    return numbers


def _throttled(root: Path) -> Numbers:
    """Throttled time of the control group that a container sees as its root, added up over CPUs."""
    lines = _words(text_of(root / "sys/fs/cgroup/cpu.stat"))
    micros = _first(lines.get("throttled_usec"))
    return {} if micros is None else {"cpu_throttled_us": micros}


_PARTS: tuple[Callable[[Path], Numbers], ...] = (
    _cpu, _memory, _out_of_memory, _pressure, _throttled,
)  # fmt: skip


def read_host(root: Path) -> dict[Device, Numbers]:
    """The host's counters, as far as its files have them; {} if they have none."""
    numbers: Numbers = {}
    for part in _PARTS:
        numbers |= part(root)
    return {Device(HOST, THE_HOST): numbers} if numbers else {}
