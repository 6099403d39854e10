"""What the verbs answer, for a model instead of words of a command line."""

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from ncclscope.analysis import summary_from_counters, summary_from_operations
from ncclscope.analysis.baseline import read_baseline
from ncclscope.analysis.counted_completeness import has_counters_only
from ncclscope.analysis.link_changes import with_links_as_peers
from ncclscope.analysis.measures import extent
from ncclscope.analysis.run import Run
from ncclscope.analysis.selection import (
    Selection,
    check_ranks,
    communicator_rows,
    function_names,
    parse_by,
)
from ncclscope.analysis.summary import Summary, check_sort, sorted_groups
from ncclscope.analysis.time_selection import model_between, replayed_part
from ncclscope.analysis.waiting.kept_account import kept_waiting_account
from ncclscope.analysis.waiting.origins import waiting_of
from ncclscope.analysis.waiting.what_if import Change, WhatIf
from ncclscope.capture.housekeeping import process_folders
from ncclscope.capture.reader import is_dataset
from ncclscope.diagnose import comparison, diagnosis
from ncclscope.diagnose.comparison_kinds import of_kinds
from ncclscope.diagnose.hang.judge import judge
from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.ingest.capture_topology import topology_of
from ncclscope.model.model import Model
from ncclscope.notebook.answers import Findings, JobComparison, JobStatus, Report, WhatIfAnswer
from ncclscope.report import comparison as comparison_text
from ncclscope.report import diagnosis as diagnosis_text
from ncclscope.report import json_csv, what_if
from ncclscope.report import status as status_text
from ncclscope.report.html import as_html
from ncclscope.report.terminal import Style, terminal_lines
from ncclscope.snapshot.process import read_snapshots, unfinished_snapshots

_WIDTH = 100  # of texts
Names = str | Sequence[str] | None
Moment = float | datetime | None  # s from the start of the run, negative ones from its end


def _listed(names: Names) -> list[str] | None:
    return [names] if isinstance(names, str) else None if names is None else list(names)


def _numbers(values: int | Sequence[int]) -> tuple[int, ...]:
    return (values,) if isinstance(values, int) else tuple(values)


def _moment_ns(model: Model, moment: Moment) -> int | None:
    """A moment on the model's clock."""
    if moment is None:
        return None
    if isinstance(moment, datetime):
        return round(moment.timestamp() * 1e6) * 1000 - model.realtime_offset_ns
    first, last = extent(model.tables["operations"]) or (0, 0)
    return (last if moment < 0 else first) + round(moment * 1e9)


def _summary(
    model: Model,
    by: tuple[str, ...],
    comm: Names,
    op: Names,
    rank: int | Sequence[int] | None,
    window: tuple[Moment, Moment],
) -> Summary:
    names, functions = _listed(comm), _listed(op)
    communicators = communicator_rows(model, names) if names else None
    narrowed = rank is not None or any(moment is not None for moment in window)
    if has_counters_only(model) and not (narrowed and model.completeness.paused_processes):
        if narrowed:
            message = f"cannot report a rank or a time of {model.path}: it has totals only"
            raise UsageError(message, "Record with --mode trace to be able to")
        return summary_from_counters.summarize(model, communicators, functions, by)
    selection = Selection(
        communicators,
        function_names(model.words["function"], functions) if functions else None,
        None if rank is None else check_ranks(model, _numbers(rank)),
        *(_moment_ns(model, moment) for moment in window),
    )
    return summary_from_operations.summarize(model, selection, by, kept_waiting_account)


def report(
    model: Model,
    by: str | Sequence[str],
    comm: Names,
    op: Names,
    rank: int | Sequence[int] | None,
    window: tuple[Moment, Moment],
    sort: str,
) -> Report:
    """The report about the selected operations."""
    keys = parse_by(_listed(by) or ["+communicator"])
    check_sort(sort, keys)
    summary = _summary(model, keys, comm, op, rank, window)
    groups = sorted_groups(summary.groups, sort)
    topology = topology_of(model.path)
    return Report(
        json_csv.as_json(summary, groups, topology),
        list(terminal_lines(summary, groups, Style(_WIDTH), topology)),
        summary,
        groups,
        as_html(summary, groups, topology),
    )


def _part(model: Model, window: tuple[Moment, Moment]) -> Model:
    """The model of what began between two moments."""
    moments = (_moment_ns(model, moment) for moment in window)
    return model_between(model, Selection(None, None, None, *moments))


def diagnose(
    model: Model,
    baseline: "str | os.PathLike[str] | None",
    comm: Names = None,
    rank: int | Sequence[int] | None = None,
    window: tuple[Moment, Moment] = (None, None),
) -> Findings:
    """All findings about a capture or a part of its time, or those that name ranks or
    communicators.
    """
    expected = None if baseline is None else read_baseline(Path(baseline))
    # Snapshots show the last moment, which is not in a time that ends before it.
    snapshots = unfinished_snapshots(model) if window[1] is None else None
    model = _part(model, window)
    everything = diagnosis.diagnose(model, snapshots, expected)
    ranks = None if rank is None else _numbers(rank)
    found = diagnosis.about(model, everything, ranks, _listed(comm))
    chosen = ranks is not None or comm is not None
    left_out = len(everything.findings) - len(found.findings) if chosen else None
    return Findings(
        diagnosis_text.as_json(model, found, left_out),
        list(diagnosis_text.lines(model, found, _WIDTH)),
        found,
    )


def status(capture: Path) -> JobStatus:
    """Whether the job of a capture hangs, by its newest snapshots."""
    if is_dataset(capture):
        message = f"cannot tell the status of {capture}: a dataset has no running processes"
        raise UsageError(message, "Try report()")
    judged = judge(*read_snapshots(process_folders(capture)))
    return JobStatus(
        status_text.as_json(judged, str(capture)), list(status_text.lines(judged)), judged
    )


def compare(
    a: list[Model],
    b: list[Model],
    comm: Names = None,
    op: Names = None,
    window: tuple[Moment, Moment] = (None, None),
) -> JobComparison:
    """Runs of one job against runs of another, or the same part of each; with all kinds of calls,
    or those of communicators and operations.
    """
    if not a or not b:
        raise UsageError("cannot compare: one side has no run", "Give a capture on both sides")
    a, b = ([_part(model, window) for model in side] for side in (a, b))
    compared = of_kinds(comparison.compare(a, b, kept_waiting_account), _listed(comm), _listed(op))
    names_a, names_b = ([str(model.path) for model in side] for side in (a, b))
    return JobComparison(
        comparison_text.as_json(compared, names_a, names_b),
        list(comparison_text.lines(compared, names_a, names_b, _WIDTH)),
        compared,
    )


def whatif(
    model: Model,
    without_rank: int | Sequence[int],
    without_comm: Names,
    links: Sequence[tuple[int, int]],
    free: Names,
    bandwidth_gbs: dict[str, float],
    window: tuple[Moment, Moment] = (None, None),
) -> WhatIfAnswer:
    """What the run, or a part of it, would take with a change."""
    chosen = _part(model, window)
    replayed = replayed_part(chosen)
    model, limits = replayed.model, what_if.limits_of(chosen, replayed)
    waiting = waiting_of(Run(model))
    if waiting is None:
        raise NcclscopeError(
            f"cannot replay {model.path}: fewer than two ranks have GPU times",
            "Record with --mode trace; NCCL 2.27 and later give GPU times",
        )
    change = Change(
        _numbers(without_rank),
        communicator_rows(model, _listed(without_comm) or []),
        tuple(links),
        communicator_rows(model, _listed(free) or []),
        tuple(
            (row, speed)
            for name, speed in bandwidth_gbs.items()
            for row in communicator_rows(model, [name])
        ),
    )
    replay = WhatIf(waiting)
    replay.check(change)
    if replay.why_not:
        raise NcclscopeError(
            f"cannot replay {model.path}: {replay.why_not}",
            "Record all of them with --gpu-timing kernel",
        )
    prediction = replay.predict(with_links_as_peers(change, waiting))
    lines = list(what_if.lines(model, waiting, change, prediction, limits, _WIDTH))
    return WhatIfAnswer(what_if.as_json(prediction, limits), lines, prediction)
