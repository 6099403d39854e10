"""Tests that `make quick` leaves out, and the reason why each takes long.

A key is a folder, a file or a test below tests/; everything below it is slow. A test that is not
here belongs to `make quick`, which is to answer in 90 seconds on two cores.
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


def why_slow(node: str) -> str | None:
    """The reason that a test is slow; None if it is not. `node` is pytest's name for it."""
    path = node.removeprefix("tests/")
    for key, reason in SLOW.items():
        if path.startswith(key):
            return reason
    return None
