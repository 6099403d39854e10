"""Marks of tests, by folder, file or test below tests/: a mark holds for everything below its key.

`make quick` is for the time between two edits: 90 seconds on two cores. It runs every unit test
that takes QUICK_CPU_S at most, and of each folder of tests/integration the tests that stand for it.
Unit tests that take more are in long_tests.txt: `make quick` names those that are missing there, and
`pytest tests/unit --write-long-tests` writes the list. Tests in real time watch a job that runs.
Those whose answer is a time, or who is late, or what lies in shared memory, are measuring: `make
test` runs them one after the other. The others wait for what a job does: they run two at a time.
"""

from pathlib import Path

QUICK_CPU_S = 0.7
LONG_LIST = Path(__file__).with_name("long_tests.txt")
LONG = frozenset(LONG_LIST.read_text().split())

# Integration tests of `make quick`: what would be broken if they failed.
QUICK = {
    "integration/analysis/test_portable_sql.py::test_every_text": "SQL texts that are tried",
    "integration/bench/test_bench.py::test_stops_after_calls": "`bench` on the simulated NCCL",
    "integration/capture/test_reader.py::test_a_whole_capture": "reading what the plugin wrote",
    "integration/cli/test_housekeeping.py::test_ls": "the command line on captures",
    "integration/diagnose/test_diagnose.py::test_the_straggler": "findings of a real job",
    "integration/export/test_log_formats.py::test_inspector_lines": "an export of real jobs",
    "integration/ingest/test_import.py::test_comma": "an import",
    "integration/model/test_model.py::test_the_straggler": "the model of a whole job",
    "integration/recorder/test_unusual_callbacks.py::test_every_event": "callbacks of all interfaces",
    "integration/report/test_report.py::test_straggler_is_named": "the report on a real job",
    "integration/simulation/test_simulated_data.py::test_every_function": "the simulated NCCL",
    "integration/web/test_training_lanes.py": "the timeline's answers",
}

# Folders of tests/integration of which `make quick` runs none, and unit tests of which each takes
# little and all together much, or whose fixtures take long.
SLOW = {
    "browser": "opens Chromium",
    "integration/docs": "runs the recipes for launchers",
    "integration/engines": "starts clusters",
    "integration/laboratory": "dozens of jobs, and every verb on each",
    "integration/live": "jobs that run for seconds; Prometheus",
    "integration/overhead": "measures commands again and again",
    "integration/system": "samples a job for seconds",
    "unit/diagnose/test_comparison.py": "writes some jobs for each comparison",
    "unit/ingest/test_hostile_files.py::test_memory": "files of hundreds of megabytes",
    "unit/laboratory": "simulates whole jobs again and again",
    "unit/live/test_dashboards.py": "npm and the TypeScript compiler",
    "unit/model/align/test_host_clocks.py": "clocks of many simulated hosts",
    "unit/web/test_bundle.py": "npm and the TypeScript compiler",
    "unit/web/test_single_file.py": "answers of the page's own program for whole jobs",
}


MEASURING = {
    "integration/capture/test_salvage.py": "nobody else's arenas may lie beside its own",
    "integration/cli/test_run.py::test_a_second_run": "a verdict on a job in real time",
    "integration/cli/test_run.py::test_commands_of_the_demo": "a verdict on a job in real time",
    "integration/diagnose/test_diagnose.py::test_simulated_jobs": "their times are the machine's",
    "integration/docs/test_guides.py::test_commands": "verdicts on jobs in real time",
    "integration/engines/test_cluster_faults.py": "workers must start again in time",
    "integration/live/test_hooks.py": "names the late rank of a job in real time",
    "integration/live/test_prometheus.py::test_a_late_rank": "alerts on a job in real time",
    "integration/live/test_prometheus.py::test_every_panel": "no alert on a job in real time",
    "integration/live/test_top.py": "names the late rank of a job in real time",
    "integration/live/test_waiting_accounts.py": "names the late rank of a job in real time",
    "integration/overhead/test_overhead.py::test_a_": "measures time",
    "integration/overhead/test_overhead.py::test_our_own_share": "measures time",
    "integration/recorder/test_sanitizers.py::test_c_unit_tests": "times how calls of the disk wait",
    "integration/simulation/test_simulation.py::test_stamps": "who reads a stamp how late",
}


WAITING = {
    "browser/test_timeline_page.py::test_a_running_job": "a page beside a job",
    "integration/bench/test_bench.py::test_a_rank_that": "ranks with a time limit",
    "integration/cli/test_ctl.py": "asks a running job",
    "integration/cli/test_run.py::test_signals": "a process that must end in time",
    "integration/cli/test_stacks.py::test_stacks": "asks a running job",
    "integration/cli/test_status.py::test_a_job_that_hangs": "asks a running job",
    "integration/cli/test_status.py::test_a_thousand_ranks": "live pages that must be new",
    "integration/cli/test_status.py::test_killed_at_once": "a process that must not be late",
    "integration/cli/test_status.py::test_who_names_no": "live pages that must be new",
    "integration/diagnose/test_hang_verdicts.py": "ranks wait for seconds",
    "integration/diagnose/test_known_hangs.py": "ranks wait for seconds",
    "integration/export/test_follow.py::test_lines": "reads beside a job",
    "integration/live/test_prometheus.py::test_a_hang": "Prometheus beside a job",
    "integration/live/test_prometheus.py::test_exposition": "a server beside a job",
    "integration/live/test_prometheus.py::test_numbers": "Prometheus beside a job",
    "integration/live/test_serve.py": "servers beside a job",
    "integration/overhead/test_overhead.py::test_commands": "commands with a time limit",
    "integration/overhead/test_overhead.py::test_who_ends": "commands that are ended",
    "integration/model/test_sampled_times.py": "times launches while it runs",
    "integration/recorder/test_disk.py": "a recorder that must keep up",
    "integration/recorder/test_harmed_files.py": "a recorder that must keep up",
    "integration/recorder/test_kernel_requests.py::test_ctl_takes": "asks a running job",
    "integration/recorder/test_live_page.py": "a recorder that must keep up",
    "integration/recorder/test_resource_failures.py": "a recorder that must keep up",
    "integration/recorder/test_timing_bad_luck.py::test_a_destroyed": "a context must go in time",
    "integration/report/test_paused_ranks.py": "a job in real time",
    "integration/report/test_running_jobs.py": "reads beside a job",
    "integration/system": "samples a job in real time",
}


def reason(marks: dict[str, str], node: str) -> str | None:
    """Why a test has a mark; None if it has none. `node` is pytest's name for it."""
    path = node.removeprefix("tests/")
    return next((text for key, text in marks.items() if path.startswith(key)), None)


def function_of(node: str) -> str:
    """A test's name without its parameters, as LONG has it."""
    return node.removeprefix("tests/").partition("[")[0]


def slow_reason(node: str) -> str | None:
    """Why `make quick` leaves a test, a file or a folder out; None if it does not."""
    if function_of(node) in LONG:
        return f"takes more than {QUICK_CPU_S} s of CPU"
    path = node.removeprefix("tests/")
    is_chosen = reason(QUICK, path) or ("::" not in path and any(k.startswith(path) for k in QUICK))
    if path.startswith("integration/") and not is_chosen:
        return reason(SLOW, path) or "others stand for its folder"
    return reason(SLOW, path)
