"""Minutes at a steady pace: memory, files and descriptors stay as they are, totals are exact."""

import argparse
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from benchmarks.helper_waits import HelperWatch, Waits
from benchmarks.loads import (
    Shape,
    callbacks_and_refusals,
    holds,
    load_command,
    scratch,
    the_process,
)
from benchmarks.results import publish, table
from ncclscope.arrays.library import library
from ncclscope.capture import layout
from ncclscope.capture.process import Process
from tests.support.player import recording

SHAPE = Shape(channels=2, steps=0)
EVENTS_PER_S = 200_000
THREADS = 2
GENERATION_S = 30  # then other threads take over: what a thread leaves behind must not add up
COMMUNICATORS = 4
SAMPLE_S = 5.0
START_S = 30.0
FLAT = 0.01  # of what it was
CLOCK_PAIR_BYTES_PER_S = 64
DISK_LIMIT_MB = 64
ARENA_LIMIT_MB = 256


@dataclass(frozen=True, slots=True)
class Plan:
    """One soak."""

    mode: str
    minutes: float
    window_s: float  # the first after warm-up is compared with the last
    variables: dict[str, str]
    events_per_s: int = EVENTS_PER_S


@dataclass(frozen=True, slots=True)
class Sample:
    """The process at one moment."""

    at_s: float
    resident_bytes: int  # without the arena, which is shared memory, and the plugin's tables
    table_bytes: int  # of the plugin's tables and buffers of fixed size, what was in use so far
    reserved_bytes: int  # private and writable, touched or not
    arena_bytes: int
    descriptors: int
    files: int
    file_bytes: int
    waits: Waits  # of the helper thread, since the sample before


@dataclass(frozen=True, slots=True)
class Soaked:
    """What came of it."""

    plan: Plan
    samples: tuple[Sample, ...]
    seconds: float
    events: int
    calls: int  # made
    counted: int  # by the plugin
    works_counted: int
    works_explained: int  # timed, or untimed with a reason
    refused: int  # events of which the recorder refused the start, as the player saw it
    dropped: int  # as the recorder counted them
    rotated_out: int


# A helper thread that waits for a CPU at exit is given the time that it needs: how long a job's
# exit may take is not what is tried here.
_PATIENT = {"NCCLSCOPE_EXIT_WAIT": "120"}
_LIMITS = _PATIENT | {
    "NCCLSCOPE_ARENA": f"{ARENA_LIMIT_MB}M",
    "NCCLSCOPE_DISK_LIMIT": f"{DISK_LIMIT_MB}M",
}
PLANS = (Plan("profile", 10, 60, _PATIENT), Plan("trace", 5, 60, _LIMITS))


def memory_bytes(pid: int, field: str) -> int:
    """VmRSS, RssShmem or VmData."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) << 10
    raise ProcessLookupError(pid)  # it has no memory any more


def table_bytes(pid: int) -> int:
    """Resident bytes of the plugin's static memory: its writable pages, and the zeroed ones behind
    them, which have no name. It has a fixed size, and a page of it counts from its first use on.
    """
    total, files, is_own = 0, [""], False  # names of this mapping and of the one before it
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0]:
            files = [files[-1], words[5] if len(words) > 5 else ""]
            name = files[1] or files[0]
            is_own = "nccl-profiler-ncclscope" in name and words[1].startswith("rw")
        elif words[0] == "Rss:" and is_own:
            total += int(words[1]) << 10
    return total


def sizes(folder: Path) -> list[int]:
    """Bytes of each file; one that rotation takes away meanwhile is not there."""
    found = []
    for path in folder.iterdir():
        try:
            found.append(path.stat().st_size)
        except FileNotFoundError:
            continue
    return found


def sample(pid: int, folder: Path, at_s: float, waits: Waits) -> Sample:
    """Looks at the process and at what it has written."""
    arena = Path(f"/dev/shm/ncclscope-{os.getuid()}") / folder.name
    files, tables = sizes(folder), table_bytes(pid)
    return Sample(
        at_s=at_s,
        resident_bytes=memory_bytes(pid, "VmRSS") - memory_bytes(pid, "RssShmem") - tables,
        table_bytes=tables,
        reserved_bytes=memory_bytes(pid, "VmData"),
        arena_bytes=arena.stat().st_blocks * 512,
        descriptors=len(os.listdir(f"/proc/{pid}/fd")),
        files=len(files),
        file_bytes=sum(files),
        waits=waits,
    )


def options(plan: Plan) -> tuple[list[object], int]:
    """The load, and the collectives it makes."""
    generations = max(1, round(plan.minutes * 60 / GENERATION_S))
    each = plan.events_per_s * GENERATION_S // THREADS // SHAPE.events(plan.mode)
    rate = plan.events_per_s * SHAPE.callbacks(plan.mode) // SHAPE.events(plan.mode) // THREADS
    words: list[object] = [*SHAPE.options(), "--threads", THREADS, "--comms", COMMUNICATORS]
    words += ["--generations", generations, "--collectives", each, "--rate", rate]
    return words, generations * each * THREADS


def watch(running: "subprocess.Popen[str]", capture: Path) -> list[Sample]:
    """Samples until the process is about to end."""
    started = time.monotonic()
    samples: list[Sample] = []
    with HelperWatch(running.pid) as helper:
        while True:
            try:
                running.wait(SAMPLE_S)
                return samples
            except subprocess.TimeoutExpired:
                pass
            at_s, waits = time.monotonic() - started, helper.take()
            with suppress(FileNotFoundError, ProcessLookupError):  # it just begins, or ends
                (folder,) = capture.iterdir()
                samples.append(sample(running.pid, folder, at_s, waits))


def counted(process: Process, level: int) -> int:
    """Calls of one level."""
    return sum(tally.calls for tally in process.call_counts if tally.key.level == level)


def explained(process: Process) -> int:
    """Operations that have a time, or a reason for having none."""
    return sum(
        int(tally.times["gpu_count"]) + int(tally.times["untimed"].sum())
        for tally in process.call_counts
        if tally.key.level == layout.LEVEL_WORK
    )


def soak(plan: Plan, capture: Path) -> Soaked:
    """Runs one plan to its end."""
    words, calls = options(plan)
    env = recording(capture, plan.mode, **plan.variables)
    started = time.monotonic()
    with subprocess.Popen(
        load_command(*words), env=env, stdout=subprocess.PIPE, text=True
    ) as running:
        samples = watch(running, capture)
        printed = running.communicate()[0]
    seconds = time.monotonic() - started
    callbacks, refused = callbacks_and_refusals(printed)
    assert refused or callbacks == calls * SHAPE.callbacks(plan.mode)
    process = the_process(capture)
    return Soaked(
        plan=plan,
        samples=tuple(samples),
        seconds=seconds,
        events=calls * SHAPE.events(plan.mode),
        calls=calls,
        counted=counted(process, layout.LEVEL_CALL),
        works_counted=counted(process, layout.LEVEL_WORK),
        works_explained=explained(process),
        refused=refused,
        dropped=process.dropped(),
        rotated_out=process.counters.get(("rotated_out", 0), 0),
    )


@dataclass(frozen=True, slots=True)
class Change:
    """One number, in the first window and in the last."""

    first: float
    last: float
    highest: float

    @property
    def flat(self) -> bool:
        return self.last <= self.first * (1 + FLAT)


def warm_up_s(plan: Plan) -> float:
    """Until threads have started and, in trace mode, the log has been filled twice: a file of it is
    new until then, and takes the place of another one afterwards.
    """
    if plan.mode == "profile":
        return START_S
    return START_S + 2 * (DISK_LIMIT_MB << 20) / (plan.events_per_s * layout.SLOT_BYTES)


def settled(soaked: Soaked) -> list[Sample]:
    """Samples after warm-up."""
    return [one for one in soaked.samples if one.at_s >= warm_up_s(soaked.plan)]


def change(soaked: Soaked, number: Callable[[Sample], float]) -> Change:
    """Medians of the windows, and the highest of all."""
    window_s, end_s = soaked.plan.window_s, soaked.samples[-1].at_s
    watched, first_s = settled(soaked), warm_up_s(soaked.plan)
    first = [number(one) for one in watched if one.at_s < first_s + window_s]
    last = [number(one) for one in watched if one.at_s > end_s - window_s]
    return Change(statistics.median(first), statistics.median(last), max(map(number, watched)))


def changes(soaked: Soaked) -> dict[str, Change]:
    """What is watched, by name; sizes in MB."""
    return {
        "resident memory without arena and tables, MB": change(
            soaked, lambda one: one.resident_bytes / 1e6
        ),
        "tables of fixed size, MB": change(soaked, lambda one: one.table_bytes / 1e6),
        "reserved memory, MB": change(soaked, lambda one: one.reserved_bytes / 1e6),
        "arena, MB": change(soaked, lambda one: one.arena_bytes / 1e6),
        "descriptors": change(soaked, lambda one: one.descriptors),
        "files": change(soaked, lambda one: one.files),
        "bytes of files, MB": change(soaked, lambda one: one.file_bytes / 1e6),
    }


def growth_bytes_per_s(soaked: Soaked) -> float:
    """Of all files, from the end of the warm-up to the last sample."""
    watched = settled(soaked)
    grown = watched[-1].file_bytes - watched[0].file_bytes
    return grown / (watched[-1].at_s - watched[0].at_s)


def waits_of_helper(soaked: Soaked) -> str:
    """What the thread that writes waited for, and what made the arena grow."""
    waits = Waits()
    for one in soaked.samples:
        waits = waits.joined(one.waits)
    said = (
        f" The helper thread waited for a CPU {waits.all_cpu_s:.1f} s in all and at most "
        f"{waits.longest_cpu_s:.2f} s at a time, for the disk {waits.all_disk_s:.1f} s and at most "
        f"{waits.longest_disk_s:.2f} s."
    )
    for before, after in pairwise(soaked.samples):  # during warm-up, too
        if after.arena_bytes > before.arena_bytes:
            said += (
                f" The arena grew by {(after.arena_bytes - before.arena_bytes) / 1e6:.0f} MB at "
                f"{after.at_s:.0f} s, when it had just waited {after.waits.longest_cpu_s:.2f} s "
                f"for a CPU and {after.waits.longest_disk_s:.2f} s for the disk."
            )
    return said


def _megabytes(limit: int) -> float:
    """A limit in 2^20 bytes as one of 10^6, with the tolerance of the bar."""
    return limit * (1 << 20) / 1e6 * (1 + FLAT)


def failures(soaked: Soaked) -> list[str]:
    """What is not flat or not exact."""
    found = changes(soaked)
    size, arena = found.pop("bytes of files, MB"), found.pop("arena, MB")
    del found["tables of fixed size, MB"]  # they cannot grow beyond it
    wrong = [name for name, one in found.items() if not one.flat]
    if not arena.flat and arena.highest > _megabytes(ARENA_LIMIT_MB):
        wrong.append("arena")
    if soaked.plan.mode == "profile":
        if growth_bytes_per_s(soaked) > 1.1 * CLOCK_PAIR_BYTES_PER_S:
            wrong.append("bytes of files")
    elif size.highest > _megabytes(DISK_LIMIT_MB):
        wrong.append("bytes of files")
    if not soaked.calls == soaked.counted == soaked.works_counted == soaked.works_explained:
        wrong.append("totals")
    if soaked.dropped < soaked.refused:
        wrong.append("lost events are not counted")
    return wrong + (["dropped"] if soaked.dropped else [])


def described(soaked: Soaked) -> str:
    """One soak's table and verdict."""
    rows: list[list[object]] = []
    for name, one in changes(soaked).items():
        digits = 3 if "MB" in name else 0
        numbers = [f"{number:.{digits}f}" for number in (one.first, one.last, one.highest)]
        rows.append([name, *numbers])
    window_s = soaked.plan.window_s
    first_s = warm_up_s(soaked.plan)
    header = [f"{soaked.plan.mode} mode", f"first {window_s:.0f} s after {first_s:.0f} s"]
    header += [f"last {window_s:.0f} s", "highest"]
    rate = soaked.events / soaked.seconds
    growth = f" Files grew by {growth_bytes_per_s(soaked):.0f} bytes/s."
    wrong = failures(soaked)
    verdict = holds(not wrong) + (f" ({', '.join(wrong)})" if wrong else "")
    return (
        f"{table(header, rows)}\n\n"
        f"{soaked.seconds / 60:.1f} minutes, {soaked.events / 1e6:.1f} M events at {rate:,.0f}/s; "
        f"{soaked.calls:,} calls made, {soaked.counted:,} counted; of {soaked.works_counted:,} "
        f"operations {soaked.works_explained:,} are timed or say why not; {soaked.dropped:,} "
        f"events dropped, {soaked.rotated_out:,} slots rotated away."
        f"{growth if soaked.plan.mode == 'profile' else ''}{waits_of_helper(soaked)} "
        f"Flat and exact: {verdict}."
    )


def bar() -> str:
    """What must hold, in words."""
    return (
        f"{THREADS} threads, replaced by new ones every {GENERATION_S} s, {COMMUNICATORS} "
        f"communicators, looked at every {SAMPLE_S:.0f} s. Reserved memory is private and "
        f"writable, touched or not. Tables: the plugin's static memory, of which a page counts "
        f"from its first use on. Bar: memory without arena and tables, descriptors "
        f"and number of files at the end at most {FLAT:.0%} above those at the start; the arena "
        f"never above NCCLSCOPE_ARENA={ARENA_LIMIT_MB}M, all of which the recorder takes once it "
        "had to wait for the disk; in profile mode "
        f"files grow by nothing but a clock pair of {CLOCK_PAIR_BYTES_PER_S} bytes a second; in "
        f"trace mode with NCCLSCOPE_DISK_LIMIT={DISK_LIMIT_MB}M they stay below that; every call "
        "counted, nothing dropped."
    )


def publish_soaks(section: str, soaks: list[Soaked]) -> None:
    """Writes the tables; exits with what does not hold."""
    publish(section, "\n\n".join([*map(described, soaks), bar()]))
    wrong = [f"{one.plan.mode}: {', '.join(failures(one))}" for one in soaks if failures(one)]
    if wrong:
        raise SystemExit("; ".join(wrong))


def main() -> None:
    """All plans, one after the other."""
    soaks = []
    for plan in PLANS:
        with scratch() as directory:
            soaks.append(soak(plan, directory / "capture"))
    publish_soaks("soak", soaks)


def soak_together(minutes: float, events_per_s: int) -> None:
    """All plans at the same time."""
    library()  # now: one that is built anew during a day does not fit what is imported
    plans = [replace(plan, minutes=minutes, events_per_s=events_per_s) for plan in PLANS]
    with scratch() as directory, ThreadPoolExecutor() as pool:
        soaks = list(pool.map(lambda plan: soak(plan, directory / plan.mode), plans))
    publish_soaks("long-soak", soaks)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Both modes at the same time.")
    parser.add_argument("--minutes", type=float, default=24 * 60.0)
    parser.add_argument("--events-per-second", type=int, default=EVENTS_PER_S)
    chosen = parser.parse_args()
    soak_together(chosen.minutes, chosen.events_per_second)
