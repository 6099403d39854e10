"""Every call of the recorder to the system, failing with each of its errors, at the start, in the
middle, at the end, and for good.
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from benchmarks.loads import holds, scratch
from benchmarks.results import publish, table
from tests.support.faults import ERRORS, LOAD, Bench, Outcome, prepare, run_with_fault
from tests.support.private_shm import use_private_shm

TOGETHER = 3  # a job waits more than it works


def sweep(bench: Bench) -> list[Outcome]:
    """All jobs."""
    faults = [
        fault
        for call in sorted(bench.calls_made)
        for error in ERRORS[call]
        for fault in bench.jobs_with(call, error)
    ]
    with ThreadPoolExecutor(TOGETHER) as pool:
        return list(pool.map(lambda fault: run_with_fault(bench, fault), faults))


def rows(outcomes: list[Outcome]) -> list[list[object]]:
    """One for each call."""
    lines: list[list[object]] = []
    for call in sorted({outcome.fault.call for outcome in outcomes}):
        of_call = [outcome for outcome in outcomes if outcome.fault.call == call]
        errors = ", ".join(dict.fromkeys(outcome.fault.error for outcome in of_call))
        recorded = Counter(outcome.recorded for outcome in of_call if not outcome.problem)
        lines.append(
            [
                f"`{call}`",
                errors.replace("0", "nothing moved"),
                len(of_call),
                f"{sum(outcome.failed_calls for outcome in of_call):,}",
                sum(bool(outcome.problem) for outcome in of_call),
                recorded["everything"],
                recorded["counts"],
                recorded["counts, counts end early"],
                recorded["nothing"],
            ]
        )
    return lines


def main() -> None:
    """Sweeps and writes the table."""
    use_private_shm()
    with scratch() as directory:
        bench = prepare(directory)
        outcomes = sweep(bench)
    header = ["call", "errors", "jobs", "calls that failed", "job harmed or loss not said"]
    header += ["everything on record", "counts exact, lost events counted"]
    header += ["counts end early, said so", "nothing on record, said so"]
    problems = [outcome for outcome in outcomes if outcome.problem]
    unreached = sorted(set(ERRORS) - set(bench.calls_made))
    note = (
        f"`ncclscope-player {' '.join(map(str, LOAD))}` in mode `full`, with the arena of a killed "
        "process to be salvaged; one call fails: the first, the second, the middle one, the last "
        "one, all, or all from the middle on. Only calls of the plugin fail. For `fcntl` the job "
        "has no stdin: the recorder then moves its descriptors out of the way of the standard "
        "streams. Bar: the job ends "
        "with 0, the log has at most one line about it, calls are counted exactly, and events "
        "that are missing are counted; where counts end early, readers say so; where nothing is "
        f"recorded, the log does. Not reached by this job: {', '.join(unreached)}. "
        f"{len(outcomes):,} jobs; the bar {holds(not problems)}."
    )
    publish("faults", f"{table(header, rows(outcomes))}\n\n{note}")
    if problems:
        raise SystemExit(str(problems[0]))
