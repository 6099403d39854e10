"""CPU that the helper thread takes, by mode and events a second."""

import os
import shutil
import statistics
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.loads import MODES, Shape, callbacks_made, load_command, scratch, the_process
from benchmarks.results import publish, table
from tests.support.player import recording

SHAPE = Shape(channels=4, steps=4)
EVENTS_PER_S = (0, 10_000, 1_000_000)
WARM_UP_S = 1.5  # memory is populated in the first second
MEASURED_S = 5.0
ROUNDS = 3
SLACK_S = 1.0


@dataclass(frozen=True, slots=True)
class Measured:
    """One run."""

    core_percent: float
    events_per_s: float
    dropped: int


def helper_thread(pid: int) -> Path:
    """The folder in /proc of the helper thread."""
    for _ in range(200):
        for task in Path(f"/proc/{pid}/task").iterdir():
            if (task / "comm").read_text().strip() == "ncclscope":
                return task
        time.sleep(0.005)
    raise SystemExit("the plugin has no helper thread")


def cpu_ns(task: Path) -> int:
    """Time that a thread has run so far."""
    return int((task / "schedstat").read_text().split()[0])


def options(mode: str, events_per_s: int) -> list[object]:
    """A load that lasts as long as the measurement and calls at that pace."""
    seconds = WARM_UP_S + MEASURED_S + SLACK_S
    if events_per_s == 0:  # one collective now, one at the end
        return ["--collectives", 1, "--generations", 2, "--pause", int(seconds * 1000)]
    collectives = int(events_per_s * seconds / SHAPE.events(mode))
    callbacks_per_s = events_per_s * SHAPE.callbacks(mode) // SHAPE.events(mode)
    return ["--collectives", collectives, "--rate", callbacks_per_s]


def measure(capture: Path, mode: str, events_per_s: int) -> Measured:
    """Percent of one core over the measured seconds."""
    env = recording(capture, mode, NCCLSCOPE_DISK_LIMIT="8G")
    command = load_command(*SHAPE.options(), *options(mode, events_per_s))
    started = time.monotonic()
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as running:
        task = helper_thread(running.pid)
        time.sleep(WARM_UP_S)
        used_before, before = cpu_ns(task), time.monotonic_ns()
        time.sleep(MEASURED_S)
        used = cpu_ns(task) - used_before
        elapsed_ns = time.monotonic_ns() - before
        printed = running.communicate()[0]
    load_s = time.monotonic() - started
    made = callbacks_made(printed) / SHAPE.callbacks(mode) * SHAPE.events(mode)
    process = the_process(capture)
    dropped = process.dropped()
    del process
    shutil.rmtree(capture)
    os.sync()  # the next run shall not pay for this one's writeback
    return Measured(100 * used / elapsed_ns, made / load_s if events_per_s else 0, dropped)


def main() -> None:
    """All modes at all paces, in turn."""
    runs: dict[tuple[str, int], list[Measured]] = {}
    with scratch() as directory:
        for number in range(ROUNDS):
            for mode in MODES:
                for pace in EVENTS_PER_S:
                    found = measure(directory / f"{mode}-{pace}-{number}", mode, pace)
                    runs.setdefault((mode, pace), []).append(found)
    rows: list[list[object]] = []
    for mode in MODES:
        percents = [
            statistics.median(run.core_percent for run in runs[mode, pace]) for pace in EVENTS_PER_S
        ]
        fast = runs[mode, EVENTS_PER_S[-1]]
        achieved = statistics.median(run.events_per_s for run in fast)
        dropped = sum(run.dropped for key, many in runs.items() if key[0] == mode for run in many)
        cells = [f"{percent:.2f} %" for percent in percents]
        rows.append([mode, *cells, f"{achieved / 1e6:.2f} M", dropped])
    header = ["mode", *(f"{pace:,} events/s".replace(",", " ") for pace in EVENTS_PER_S)]
    header += ["events/s made in the last", "dropped"]
    callbacks = ", ".join(f"{SHAPE.callbacks(m) / SHAPE.events(m):.1f} in {m} mode" for m in MODES)
    note = (
        f"Percent of one core that the helper thread ran, median of {ROUNDS} interleaved runs of "
        f"{MEASURED_S:.0f} s each after {WARM_UP_S} s of warm-up. An event is what NCCL starts "
        f"once; with its states and its stop it makes several callbacks: {callbacks}, for a "
        f"collective of {SHAPE.channels} channels with {SHAPE.steps} steps. trace and full write "
        "every event to disk, profile joins operations with their kernels. No bar is set."
    )
    publish("helper-cpu", f"{table(header, rows)}\n\n{note}")
    if any(run.dropped for many in runs.values() for run in many):
        raise SystemExit("events were dropped")
