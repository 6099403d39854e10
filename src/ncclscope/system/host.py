"""The host's own counters: CPU, memory and pressure, from /proc and the control group."""

import os
from collections.abc import Callable
from pathlib import Path

from ncclscope.system.counters import HOST, THE_HOST, Device

Numbers = dict[str, int]
_LONGEST_FILE = 1 << 20
_MS_PER_TICK = 1000 // (os.sysconf("SC_CLK_TCK") or 100)


def text_of(path: Path) -> str:
    """A small file; "" where there is none, or none for us."""
    try:
        with path.open("rb") as file:
            return file.read(_LONGEST_FILE).decode("utf-8", "replace")
    except OSError:
        return ""


def whole(word: str) -> int | None:
    """A word that is a number; None where it is none, or negative (an unknown speed)."""
    return int(word) if word.isascii() and word.isdigit() and len(word) < 20 else None


def number_in(path: Path) -> int | None:
    """A file with one number."""
    return whole(text_of(path).strip())


def _words(text: str) -> dict[str, list[str]]:
    """Lines by their first word."""
    lines = (line.split() for line in text.splitlines())
    return {words[0].rstrip(":"): words[1:] for words in lines if words}


def _first(words: list[str] | None) -> int | None:
    return whole(words[0]) if words else None


def _cpu(root: Path) -> Numbers:
    text = text_of(root / "proc/stat")
    found = [whole(word) for word in _words(text).get("cpu", ())]
    times = [number for number in found if number is not None]
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
    found = {}
    for counter, name in (("memory_available_bytes", "MemAvailable"), ("memory_bytes", "MemTotal")):
        if (size := kib.get(name)) is not None:
            found[counter] = size * 1024
    total, free = kib.get("SwapTotal"), kib.get("SwapFree")
    if total is not None and free is not None:
        found["swap_used_bytes"] = max(total - free, 0) * 1024
    return found


def _out_of_memory(root: Path) -> Numbers:
    kills = _first(_words(text_of(root / "proc/vmstat")).get("oom_kill"))
    return {} if kills is None else {"oom_kills": kills}


def _pressure(root: Path) -> Numbers:
    found = {}
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
                found[counter] = total
    return found


def _throttled(root: Path) -> Numbers:
    """Of the control group that a container sees as its root; the kernel adds it up over CPUs."""
    lines = _words(text_of(root / "sys/fs/cgroup/cpu.stat"))
    micros = _first(lines.get("throttled_usec"))
    return {} if micros is None else {"cpu_throttled_us": micros}


_PARTS: tuple[Callable[[Path], Numbers], ...] = (
    _cpu, _memory, _out_of_memory, _pressure, _throttled,
)  # fmt: skip


def read_host(root: Path) -> dict[Device, Numbers]:
    """The host, as far as its files say; nothing where they say nothing."""
    numbers: Numbers = {}
    for part in _PARTS:
        numbers |= part(root)
    return {Device(HOST, THE_HOST): numbers} if numbers else {}
