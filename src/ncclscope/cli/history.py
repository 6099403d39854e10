"""`ncclscope history`."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ncclscope.capture.housekeeping import parse_age
from ncclscope.cli.terminal import output_width
from ncclscope.errors import UsageError
from ncclscope.history.late_hosts import host_records
from ncclscope.history.place import add_to_history, history_directory, prune_history
from ncclscope.history.reader import History
from ncclscope.history.tables import COMMUNICATORS, HOSTS, LINKS, MODULES
from ncclscope.history.trend import (
    Trend,
    host_trend,
    link_trend,
    module_trend,
    names_of,
    role_trends,
)
from ncclscope.humanize import amount, plural, printable
from ncclscope.report import history as report

_WIDEST = 160
_LAST_JOBS, _LAST_OF_HOSTS, _LAST_EQUAL = 20, 1000, 10
# Options that only some actions have.
_ONLY = {
    "label": ("add",), "host": ("trend",), "link": ("trend",), "comm": ("trend",),
    "module": ("trend",), "job": ("diff",), "last": ("list", "trend", "diff"),
    "keep": ("add", "prune"), "older_than": ("prune",), "dry_run": ("prune",),
    "captures": ("add",), "json": ("list", "trend", "diff"),
}  # fmt: skip
_SUBJECTS = ("host", "link", "comm", "module")


def run(arguments: argparse.Namespace) -> int:
    """Adds jobs to a history, shows them, or deletes them."""
    _check(arguments)
    if arguments.action == "add":
        return _add(arguments)
    if arguments.action == "prune":
        return _prune(arguments)
    shown = {"list": _list, "trend": _trend, "diff": _diff}[arguments.action]
    lines, data = shown(history_directory(arguments.directory), arguments)
    if arguments.json:
        print(json.dumps(data, indent=2, allow_nan=False))
    else:
        for line in lines:
            print(line)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    action = arguments.action
    for option, actions in _ONLY.items():
        if getattr(arguments, option) and action not in actions:
            spelled = "a capture" if option == "captures" else f"--{option.replace('_', '-')}"
            message = f"history {action} takes no {spelled.removeprefix('a ')}"
            raise UsageError(message, f"It belongs to history {' and '.join(actions)}")
    for option, least in (("last", 1), ("keep", 1)):
        number = getattr(arguments, option)
        if number is not None and number < least:
            raise UsageError(f"--{option} {number} leaves no job", "Give a number from 1 on")


# ---- what changes a history ----
def _add(arguments: argparse.Namespace) -> int:
    if not arguments.captures:
        raise UsageError("history add needs a capture", "Name its directory behind DIR")
    # Late: what opens captures takes longer to import than a query takes.
    from ncclscope.capture.reader import resolve_capture
    from ncclscope.cli.progress import open_model_with_progress
    from ncclscope.history.sums import sums_of

    for capture in arguments.captures:
        path = resolve_capture(capture)
        sums = sums_of(open_model_with_progress(path), arguments.label or "")
        name = add_to_history(arguments.directory, sums)
        print(f"added {printable(sums.job.label)} as {name}")
    if arguments.keep is not None:
        deleted = prune_history(arguments.directory, arguments.keep, None).jobs
        if deleted:
            print(f"deleted {plural(len(deleted), 'older job')}")
    return 0


def _prune(arguments: argparse.Namespace) -> int:
    if arguments.keep is None and not arguments.older_than:
        message = "history prune needs to know what to delete"
        raise UsageError(message, "Give --keep N, --older-than AGE, or both")
    age_s = parse_age(arguments.older_than) if arguments.older_than else None
    deleted = prune_history(arguments.directory, arguments.keep, age_s, arguments.dry_run)
    verb = "would delete" if arguments.dry_run else "deleted"
    for name in deleted.jobs:
        print(f"{verb} {name}")
    if deleted.leftovers:
        print(f"{verb} {plural(len(deleted.leftovers), 'unfinished file')} of killed writers")
    print(f"{plural(len(deleted.jobs), 'job')}, {amount(deleted.bytes)}")
    return 0


# ---- what shows it ----
Shown = tuple[Iterator[str], Any]


def _list(directory: Path, arguments: argparse.Namespace) -> Shown:
    history = History(directory, arguments.last or _LAST_JOBS)
    width = output_width(_WIDEST)
    return report.job_lines(history, width), report.jobs_as_json(history)


def _trend(directory: Path, arguments: argparse.Namespace) -> Shown:
    subjects = [name for name in _SUBJECTS if getattr(arguments, name)]
    if len(subjects) > 1:
        raise UsageError(
            f"history trend shows one thing, not {' and '.join(f'--{name}' for name in subjects)}",
            "Give one of them",
        )
    width = output_width(_WIDEST)
    if not subjects:
        history = History(directory, arguments.last or _LAST_OF_HOSTS)
        records = host_records(history)
        return report.host_lines(history, records, width), report.hosts_as_json(history, records)
    history = History(directory, arguments.last or _LAST_JOBS)
    trends = _trends(history, subjects[0], arguments)
    return report.trend_lines(history, trends, width), report.trends_as_json(history, trends)


def _trends(history: History, subject: str, arguments: argparse.Namespace) -> list[Trend]:
    """The trends of what was asked for; an error with what there is where nothing has this name."""
    if subject == "host":
        trends, named = [host_trend(history, arguments.host)], (HOSTS, "host")
    elif subject == "link":
        trends, named = [link_trend(history, *arguments.link)], (LINKS, "source")
    elif subject == "comm":
        trends, named = role_trends(history, arguments.comm), (COMMUNICATORS, "role")
    else:
        trends, named = [module_trend(history, arguments.module)], (MODULES, "module")
    if any(trend.points for trend in trends):
        return trends
    names = names_of(history, *named)
    given = getattr(arguments, subject)
    spelled = given if isinstance(given, str) else " ".join(given)
    more = f" and {len(names) - 8:,} more" if len(names) > 8 else ""
    raise UsageError(
        f"the last {plural(len(history.jobs), 'job')} have nothing of --{subject} {spelled}",
        f"There is {', '.join(names[:8])}{more}"
        if names
        else f"They have no {named[0]} with times",
    )


def _diff(directory: Path, arguments: argparse.Namespace) -> Shown:
    from ncclscope.history.difference import job_difference  # late, as in _add
    from ncclscope.report.history_difference import difference_as_json, difference_lines

    changed, left_out = job_difference(directory, arguments.job, arguments.last or _LAST_EQUAL)
    width = output_width(_WIDEST)
    return difference_lines(changed, left_out, width), difference_as_json(changed)
