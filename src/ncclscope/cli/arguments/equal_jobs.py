"""The option of `compare` and `diagnose` that says how many jobs of a history count."""

import argparse

from ncclscope.errors import UsageError


def add_equal_jobs_argument(parser: argparse.ArgumentParser) -> None:
    """Adds how many equal jobs."""
    parser.add_argument(
        "--equal-jobs", type=int, metavar="N",
        help="with --history: at most the last N equal jobs (default: 10)",
    )  # fmt: skip


def check_equal_jobs(arguments: argparse.Namespace) -> None:
    """Raises UsageError for a number without a history, or of no job."""
    number = arguments.equal_jobs
    if number is not None and not arguments.history:
        raise UsageError("--equal-jobs needs jobs", "Give --history DIR as well, or leave it out")
    if number is not None and number < 1:
        raise UsageError(f"--equal-jobs {number} leaves no job", "Give a number from 1 on")
