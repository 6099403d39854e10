"""System calls of servers that fail in turn: no traceback, no hang, the next one is answered."""

import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.results import publish, rows_of, table
from ncclscope.simulation.scenario import Scenario
from tests.support.server_faults import (
    Fault,
    Server,
    Supervisor,
    attempt,
    build_supervisor,
    faults_of,
    metrics_server,
    timeline_server,
    top_screen,
)
from tests.support.simulated_jobs import running
from tests.support.waiting import eventually
from tests.support.writer import SyntheticSpec, synthetic

JOB = Scenario(name="served", ranks=2, steps=1_000_000, compute_ms=50)
SERVERS = {"serve": metrics_server, "timeline": timeline_server, "top": top_screen}
SLOW = ("timeline", "top")  # a fault takes seconds: fewer of each call
Outcomes = list[tuple[Fault, int, str]]  # how many calls failed, and what went wrong


@contextmanager
def _capture(verb: str, directory: Path) -> Iterator[Path]:
    """A running job for `serve` and `top`; a finished one for `timeline`, whose picture of a
    running one would never be complete.
    """
    capture = directory / "capture"
    if verb == "timeline":
        synthetic(capture, SyntheticSpec(processes=2, operations=20))
        yield capture
        return
    with running(JOB, capture, "--mode", "profile"):
        eventually(lambda: len(list(capture.glob("*/tally"))) == JOB.ranks)
        yield capture


def sweep(verb: str, directory: Path, only: str = "") -> Outcomes:
    """Makes each call fail that a server makes, and returns what happened."""
    supervisor, program = Supervisor(directory / "control"), build_supervisor(directory)
    outcomes: Outcomes = []
    with _capture(verb, directory) as capture:
        server: Server = SERVERS[verb](capture, supervisor, program, directory / "log")
        server.start(verb == "top")
        calls: dict[str, int] = {}
        for number in range(5):  # the first use imports and opens what later ones have
            wrong, _ = attempt(server, None)
            assert not wrong, wrong
            for call, made in supervisor.calls.items() if number else ():
                calls[call] = max(made, calls.get(call, 0))
        faults = [fault for fault in faults_of(calls, verb in SLOW) if only in ("", fault.call)]
        print(verb, len(faults), "faults", calls, flush=True)
        for number, fault in enumerate(faults):
            if number % 20 == 0:
                print(verb, number, "of", len(faults), flush=True)
            began = time.monotonic()
            wrong, failed = attempt(server, fault)
            outcomes.append((fault, failed, wrong))
            if wrong:
                print(verb, fault, failed, f"{time.monotonic() - began:.1f} s", wrong, flush=True)
            if wrong or server.process is None or server.process.poll() is not None:
                server.stop()
                server.start(verb == "top")
        attempt(server, None)  # starts it again where it is ending
        code = server.stop()
        if code != 0:
            outcomes.append((Fault("SIGTERM", "none"), 0, f"ended with {code}"))
    return outcomes


def _rows(verb: str, outcomes: Outcomes) -> list[list[object]]:
    """A row for each system call of a server."""
    by_call: dict[str, Outcomes] = defaultdict(list)
    for outcome in outcomes:
        by_call[outcome[0].call].append(outcome)
    rows: list[list[object]] = []
    for call, of_call in by_call.items():
        errors = ", ".join(dict.fromkeys(fault.error for fault, _, _ in of_call))
        failed = sum(failed for _, failed, _ in of_call)
        bad = sum(bool(wrong) for _, _, wrong in of_call)
        errors = errors.replace("0", "nothing moved")
        rows.append([verb, f"`{call}`", errors, len(of_call), f"{failed:,}", bad])
    return rows


def publish_results(results: dict[str, Outcomes]) -> None:
    """Writes the table into its page; rows of servers that were not measured now stay."""
    rows = [row for row in rows_of("server_faults") if row[0] not in results]
    rows += [row for verb, outcomes in results.items() for row in _rows(verb, outcomes)]
    header = ["verb", "system call", "errors", "times tried", "calls that failed", "bad"]
    tried = sum(int(str(row[3])) for row in rows)
    note = (
        "Each system call that a server makes while it serves fails: the first, the second, the "
        "middle one, the last one, or all for a while; of `timeline` and `top` fewer. A "
        "seccomp filter makes them fail in the running server, so those of Python and its "
        "libraries are among them. Meanwhile clients ask and keys are pressed. Bar: no traceback, "
        "no end, no hang; afterwards requests are answered with everything in it, and `top` draws. "
        "Where the terminal itself cannot be read or written, `top` ends with a sentence. Calls "
        "are left out that cannot fail, or where glibc ends the process if they do, as `futex`. "
        f"{tried:,} faults."
    )
    publish("server_faults", f"{table(header, rows)}\n\n{note}")


def main(verbs: Iterable[str] = SERVERS, only: str = "") -> None:
    """Measures servers; with `only` a single call of them, and publishes nothing."""
    results = {}
    for verb in verbs:
        with tempfile.TemporaryDirectory(prefix="server-faults-") as directory:
            results[verb] = sweep(verb, Path(directory), only)
    if not only:
        publish_results(results)
    problems = [
        f"{verb}: {fault}: {wrong}"
        for verb, outcomes in results.items()
        for fault, _, wrong in outcomes
        if wrong
    ]
    if problems:
        raise SystemExit("\n".join(problems[:20]))


if __name__ == "__main__":  # [VERB [CALL]]
    main(sys.argv[1:2] or SERVERS, (sys.argv[2:] or [""])[0])
