"""Marks of tests, by folder, file or test below tests/: a mark holds for everything below its key.

`make quick` leaves slow tests out; it is to answer in 90 seconds on two cores. Tests in real time
watch a job that runs. Those whose answer is a time, or who is late, are measuring: `make test` runs
them one after the other. The others wait for what a job does: they run two at a time.
"""

SLOW = {
    "browser": "opens Chromium",
    "integration/bench": "benchmarks run for seconds, with ranks as processes",
    "integration/capture/test_reader.py::test_every_byte": "reads thousands of damaged files",
    "integration/capture/test_reader.py::test_every_head": "reads thousands of damaged files",
    "integration/cli": "jobs of several processes",
    "integration/diagnose": "jobs of several processes, hundreds of damaged captures",
    "integration/docs": "runs the recipes for launchers",
    "integration/export": "reads whole exports back, with other programs too",
    "integration/ingest": "imports and exports whole jobs",
    "integration/laboratory": "dozens of jobs, and every verb on each",
    "integration/live": "jobs that run for seconds; Prometheus",
    "integration/model/test_damaged_captures.py": "hundreds of damaged captures",
    "integration/model/test_one_clock.py": "clocks of many simulated hosts",
    "integration/model/test_saved_model.py": "hundreds of damaged models",
    "integration/model/test_parquet_dataset.py": "exports and reads whole jobs",
    "integration/overhead": "measures commands again and again",
    "integration/recorder/test_call_counts.py": "a load of many threads",
    "integration/recorder/test_disk.py": "waits for heartbeats, a second each",
    "integration/recorder/test_faults.py": "dozens of jobs, each with another failing call",
    "integration/recorder/test_harmed_files.py": "waits for heartbeats, a second each",
    "integration/recorder/test_kill.py": "kills a hundred processes",
    "integration/recorder/test_live_page.py": "waits for heartbeats, a second each",
    "integration/recorder/test_resource_failures.py": "waits for slow and full disks",
    "integration/recorder/test_sanitizers.py": "compiles everything twice, with sanitizers",
    "integration/recorder/test_transcripts.py": "plays every transcript in three ways",
    "integration/recorder/test_unusual_callbacks.py::test_many_threads": "500 threads",
    "integration/report/test_known_numbers.py": "reports on every transcript",
    "integration/report/test_paused_ranks.py": "a job that runs for seconds",
    "integration/report/test_report.py::test_counters_give": "records every transcript again",
    "integration/report/test_running_jobs.py": "a job that runs for seconds",
    "integration/simulation/test_scenarios.py": "jobs of several processes; a thousand ranks",
    "integration/system": "samples a job for seconds",
    "integration/test_packaging.py": "builds sdist and wheel",
    "integration/web": "whole jobs as timelines",
    "integration/recorder/test_pytorch.py": "imports PyTorch in several processes",
    "unit/diagnose/test_comparison.py": "writes some jobs for each comparison",
    "unit/diagnose/test_rules.py::test_two_at_once": "builds a job for each pair of faults",
    "unit/diagnose/test_rules.py::test_what_was_planted": "builds a job for each fault",
    "unit/ingest/test_hostile_files.py::test_memory": "files of hundreds of megabytes",
    "unit/laboratory": "simulates whole jobs again and again",
    "unit/live/test_dashboards.py": "npm and the TypeScript compiler",
    "unit/model/align/test_host_clocks.py": "clocks of many simulated hosts",
    "unit/web/test_bundle.py": "npm and the TypeScript compiler",
}


MEASURING = {
    "integration/cli/test_run.py::test_a_second_run": "a verdict on a job in real time",
    "integration/cli/test_run.py::test_commands_of_the_demo": "a verdict on a job in real time",
    "integration/diagnose/test_diagnose.py::test_simulated_jobs": "their times are the machine's",
    "integration/docs/test_guides.py::test_commands": "verdicts on jobs in real time",
    "integration/live/test_hooks.py": "names the late rank of a job in real time",
    "integration/live/test_prometheus.py::test_a_late_rank": "alerts on a job in real time",
    "integration/live/test_prometheus.py::test_every_panel": "no alert on a job in real time",
    "integration/live/test_top.py": "names the late rank of a job in real time",
    "integration/overhead/test_overhead.py::test_a_": "measures time",
    "integration/overhead/test_overhead.py::test_our_own_share": "measures time",
}


WAITING = {
    "browser/test_timeline_page.py::test_a_running_job": "a page beside a job",
    "integration/bench/test_bench.py::test_a_rank_that": "ranks with a time limit",
    "integration/cli/test_ctl.py": "asks a running job",
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
    "integration/recorder/test_disk.py": "a recorder that must keep up",
    "integration/recorder/test_harmed_files.py": "a recorder that must keep up",
    "integration/recorder/test_live_page.py": "a recorder that must keep up",
    "integration/recorder/test_resource_failures.py": "a recorder that must keep up",
    "integration/report/test_paused_ranks.py": "a job in real time",
    "integration/report/test_running_jobs.py": "reads beside a job",
    "integration/system": "samples a job in real time",
}


def reason(marks: dict[str, str], node: str) -> str | None:
    """Why a test has a mark; None if it has none. `node` is pytest's name for it."""
    path = node.removeprefix("tests/")
    return next((text for key, text in marks.items() if path.startswith(key)), None)
