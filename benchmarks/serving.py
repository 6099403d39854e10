"""`ncclscope serve` beside a job: what it costs, how long scrapes take, what the job notices."""

import os
import re
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.loads import Shape, callbacks_made, holds, load_command, scratch
from benchmarks.results import publish, table
from tests.support.player import recording

PROCESSES, COMMUNICATORS = 8, 50
LOADS = (("profile", 10_000), ("profile", 1_000_000), ("trace", 10_000))  # operations/s of all
SHAPE = Shape(channels=2, steps=1)
WARM_UP_S, MEASURED_S = 4.0, 20.0
SCRAPE_BAR_MS, MEMORY_BAR_MB, CPU_BAR = 50.0, 100.0, 5.0
PAIRS = 7  # of runs with and without it
COLLECTIVES, CALLBACKS_PER_S = 30_000, 300_000  # of such a run
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Served:
    """One measurement."""

    core_percent: float
    operations_per_s: float  # that the job really made
    scrape_ms: list[float]
    text_kb: float
    series: int
    memory_mb: float


@contextmanager
def job(capture: Path, mode: str, per_s: int) -> Iterator[None]:
    """Processes that call at a pace until they are killed."""
    running = []
    each = per_s // PROCESSES
    for rank in range(PROCESSES):
        env = recording(capture, mode, RANK=str(rank), WORLD_SIZE=str(PROCESSES))
        options = [*SHAPE.options(), "--comms", COMMUNICATORS, "--collectives", each * 3600]
        options += ["--rate", each * SHAPE.callbacks(mode)]
        command = load_command(*options)
        running.append(subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL))
    try:
        yield
    finally:
        for one in running:
            one.kill()
        for one in running:
            one.wait()


@contextmanager
def serve(capture: Path) -> Iterator[tuple[int, str]]:
    """Process id and address."""
    words = [sys.executable, "-m", "ncclscope", "serve", str(capture), "--port", "0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        found = re.search(r"http://[^/]+", server.stderr.readline())
        assert found
        try:
            yield server.pid, found[0]
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=30)


def cpu_s(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def scrape(url: str) -> tuple[float, str]:
    """Milliseconds until the whole text was there, and the text."""
    began = time.monotonic()
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return (time.monotonic() - began) * 1e3, text


def operations(text: str) -> float:
    """All that the job had done."""
    return sum(map(float, re.findall(r"^ncclscope_operations_total{.*} (\S+)$", text, re.M)))


def measure(capture: Path, mode: str, asked_per_s: int) -> Served:
    """Scrapes once a second beside a job."""
    with job(capture, mode, asked_per_s):
        while len(list(capture.glob("*/tally"))) < PROCESSES:
            time.sleep(0.2)
        with serve(capture) as (pid, url):
            time.sleep(WARM_UP_S)
            used, began = cpu_s(pid), time.monotonic()
            took, text = [], ""
            first = operations(scrape(url)[1])
            while time.monotonic() - began < MEASURED_S:
                milliseconds, text = scrape(url)
                took.append(milliseconds)
                time.sleep(1)
            percent = 100 * (cpu_s(pid) - used) / (time.monotonic() - began)
            per_s = (operations(text) - first) / (time.monotonic() - began)
            status = Path(f"/proc/{pid}/status").read_text()
    series = sum(not line.startswith("#") for line in text.splitlines())
    kilobytes = int(re.findall(r"VmHWM:\s+(\d+)", status)[0])
    return Served(percent, per_s, took, len(text) / 1e3, series, kilobytes / 1e3)


def callback_ns(capture: Path) -> float:
    """CPU time of a load by callbacks: all its threads, the helper's too."""
    command = load_command(
        *SHAPE.options(), "--collectives", COLLECTIVES, "--rate", CALLBACKS_PER_S
    )
    env = recording(capture, "trace", RANK="0", WORLD_SIZE="1")
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        printed = running.stdout.read()
        _, _, used = os.wait4(running.pid, 0)
        running.returncode = 0
    return (used.ru_utime + used.ru_stime) * 1e9 / callbacks_made(printed)


def paired(directory: Path) -> list[tuple[float, float]]:
    """The same load without and with it, in turn."""
    found = []
    for number in range(PAIRS):
        alone = callback_ns(directory / f"alone-{number}")
        watched = directory / "watched"
        watched.mkdir(exist_ok=True)
        with serve(watched):
            served = callback_ns(watched / f"served-{number}")
        found.append((alone, served))
    return found


def main() -> None:
    """All loads, then the job's side."""
    with scratch() as directory:
        served = {load: measure(directory / f"{load[0]}-{load[1]}", *load) for load in LOADS}
        pairs = paired(directory)
    rows: list[list[object]] = [
        [
            mode,
            f"{asked_per_s:,}",
            f"{one.operations_per_s:,.0f}",
            f"{one.core_percent:.1f} %",
            f"{statistics.median(one.scrape_ms):.1f} ms",
            f"{max(one.scrape_ms):.1f} ms",
            f"{one.text_kb:.0f} kB",
            one.series,
            f"{one.memory_mb:.0f} MB",
        ]
        for (mode, asked_per_s), one in served.items()
    ]
    header = [
        "mode",
        "operations/s asked for",
        "made",
        "of a core",
        "scrape, median",
        "longest",
        "text",
        "series",
        "memory",
    ]
    ratios = sorted(served / alone for alone, served in pairs)
    alone_ns = statistics.median(alone for alone, _ in pairs)
    served_ns = statistics.median(served for _, served in pairs)
    fine = {
        f"scrape below {SCRAPE_BAR_MS:.0f} ms": all(
            statistics.median(one.scrape_ms) < SCRAPE_BAR_MS for one in served.values()
        ),
        f"memory below {MEMORY_BAR_MB:.0f} MB": all(
            one.memory_mb < MEMORY_BAR_MB for one in served.values()
        ),
        f"below {CPU_BAR:.0f} % of a core": all(
            one.core_percent < CPU_BAR for one in served.values()
        ),
    }
    note = (
        f"{PROCESSES} processes with {COMMUNICATORS} communicators each make so many operations a "
        "second together, as far as they get CPU time; "
        f"`serve` reads each second and is scraped each second for {MEASURED_S:.0f} s. CPU "
        "time is its own; scrapes are wall time on a machine that does other work. Bars: "
        + ", ".join(f"{bar}: {holds(does)}" for bar, does in fine.items())
        + f".\n\nThe job's side: {CALLBACKS_PER_S:,} callbacks a second in trace mode, CPU "
        f"time of the whole process by callbacks, without and with `serve` beside it in turn: "
        f"{alone_ns:.0f} and {served_ns:.0f} ns (medians of {PAIRS}); the ratio of a pair was "
        f"{statistics.median(ratios):.2f}, from {ratios[0]:.2f} to {ratios[-1]:.2f}: "
        f"{'no difference' if ratios[0] < 1 < ratios[-1] else 'a difference'} can be seen. `serve` "
        "touches nothing of the job but files that are written anyway."
    )
    publish("serving", f"{table(header, rows)}\n\n{note}")
    missed = [bar for bar, does in fine.items() if not does]
    if missed:
        raise SystemExit(f"does not hold: {', '.join(missed)}")
