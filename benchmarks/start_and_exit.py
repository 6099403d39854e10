"""Time that the plugin adds to a process's start and to its exit, by mode, and that `run` adds."""

import os
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.loads import MODES, holds, scratch
from benchmarks.results import publish, table
from ncclscope.native import empty_plugin_path
from tests.support.player import recording

ROUNDS = 31
LIFE_MS = 300  # memory is populated in the background during the first moments
ENDS = ("finalize", "exit")
EXIT_BAR_MS = 2000  # NCCLSCOPE_EXIT_WAIT
RUN_BAR_MS = 100
HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Life:
    """One process, in ms."""

    load_ms: float
    init_ms: float
    first_event_ms: float
    exit_ms: float  # from the last call but finalize until it is gone
    whole_ms: float  # less the time it slept


def build(directory: Path) -> Path:
    """The program that lives and dies."""
    program = directory / "start_and_exit"
    source = HERE / "start_and_exit.c"
    subprocess.run(["gcc", "-O2", "-std=gnu11", "-w", "-o", program, source, "-ldl"], check=True)
    return program


def live(program: Path, env: dict[str, str], end: str) -> Life:
    """Runs it once."""
    command = [str(program), env["NCCL_PROFILER_PLUGIN"], end, str(LIFE_MS)]
    before = time.monotonic_ns()
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    after = time.monotonic_ns()
    load, init, event, ending = map(int, ran.stdout.split())
    whole_ms = (after - before) / 1e6 - LIFE_MS
    return Life(load / 1e6, init / 1e6, event / 1e6, (after - ending) / 1e6, whole_ms)


def median_of(lives: list[Life]) -> Life:
    """Each time's own median."""
    times = [
        (one.load_ms, one.init_ms, one.first_event_ms, one.exit_ms, one.whole_ms) for one in lives
    ]
    return Life(*map(statistics.median, zip(*times, strict=True)))


def all_lives() -> dict[tuple[str, str], list[Life]]:
    """By plugin or mode, and by the way it ended; interleaved."""
    lives: dict[tuple[str, str], list[Life]] = {}
    with scratch() as directory:
        program = build(directory)
        for _ in range(ROUNDS):
            for end in ENDS:
                for name in ("empty", *MODES):
                    env = recording(directory / "capture", "profile" if name == "empty" else name)
                    if name == "empty":
                        env |= {"NCCL_PROFILER_PLUGIN": str(empty_plugin_path())}
                    lives.setdefault((name, end), []).append(live(program, env, end))
                    shutil.rmtree(directory / "capture", ignore_errors=True)
    return lives


def run_adds_ms() -> float:
    """What `ncclscope run` adds to a command: the best of many, compiled once as when installed."""
    script = Path(sys.executable).with_name("ncclscope")
    with scratch() as directory:
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = str(directory / "bytecode")

        def took_ms(command: list[str]) -> float:
            before = time.monotonic_ns()
            subprocess.run(command, check=True, cwd=directory, capture_output=True, env=env)
            return (time.monotonic_ns() - before) / 1e6

        alone = min(took_ms(["true"]) for _ in range(ROUNDS))
        return min(took_ms([str(script), "run", "--", "true"]) for _ in range(ROUNDS)) - alone


def main() -> None:
    """Lives and deaths of many processes."""
    lives = all_lives()
    medians = {key: median_of(many) for key, many in lives.items()}
    rows: list[list[object]] = []
    for name in ("empty", *MODES):
        ended, left = medians[name, "finalize"], medians[name, "exit"]
        times = [ended.load_ms, ended.init_ms, ended.first_event_ms]
        times += [ended.exit_ms, left.exit_ms, ended.whole_ms]
        added = ended.whole_ms - medians["empty", "finalize"].whole_ms
        rows.append([name, *(f"{ms:.2f}" for ms in times), f"{added:+.2f}"])
    header = ["plugin", "dlopen", "first init", "first event", "exit after finalize"]
    header += ["exit without", "whole process", "over the empty plugin"]
    longest = max(one.exit_ms for (name, _), many in lives.items() if name in MODES for one in many)
    run_ms = run_adds_ms()
    body = (
        f"{table(header, rows)}\n\n"
        f"ms of wall time, medians of {ROUNDS} interleaved processes that live for {LIFE_MS} ms "
        "(taken off the whole). Exit: from before finalize, or from the return of main without "
        "it, until the parent has the exit code. Nothing is left to drain here; a process that "
        "ends in the middle of a flood waits for its last records, at most NCCLSCOPE_EXIT_WAIT.\n\n"
        f"Bar: no exit takes longer than {EXIT_BAR_MS} ms: {holds(longest <= EXIT_BAR_MS)} "
        f"(the longest of all: {longest:.1f} ms). No bar is set for the start.\n\n"
        f"`ncclscope run -- true` takes {run_ms:.0f} ms more than `true` (the best of {ROUNDS}). "
        f"Bar: {RUN_BAR_MS} ms: {holds(run_ms <= RUN_BAR_MS)}."
    )
    publish("start-and-exit", body)
    if longest > EXIT_BAR_MS:
        raise SystemExit(f"an exit took {longest:.0f} ms")
    if run_ms > RUN_BAR_MS:
        raise SystemExit(f"`ncclscope run` took {run_ms:.0f} ms")
