"""`ncclscope report`."""

import argparse
import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ncclscope.analysis import summary_from_counters, summary_from_operations
from ncclscope.analysis.counted_completeness import has_counters_only
from ncclscope.analysis.groups import Group
from ncclscope.analysis.kept_sums import is_kept, keep_sums, kept_sums
from ncclscope.analysis.kernel_exposure import KernelExposure, kernel_exposure
from ncclscope.analysis.report_stage import ReportSums, work_on
from ncclscope.analysis.selection import Selection, communicator_rows, parse_by
from ncclscope.analysis.summary import Summary, check_sort, sorted_groups
from ncclscope.analysis.waiting.kept_account import kept_account, kept_waiting_account
from ncclscope.arrays.freed_memory import keep_freed_memory
from ncclscope.capture.reader import resolve_capture
from ncclscope.cli.engine_options import engine_on
from ncclscope.cli.progress import open_model_with_progress
from ncclscope.cli.selection_options import selection_of
from ncclscope.cli.terminal import output_width, uses_colour
from ncclscope.errors import IncompleteError, UsageError
from ncclscope.humanize import printable
from ncclscope.ingest.capture_topology import topology_of
from ncclscope.model.model import Model
from ncclscope.model.topology import Topology
from ncclscope.output_files import check_file, is_stdout, size_written, write_text
from ncclscope.report.json_csv import as_csv, as_json
from ncclscope.report.terminal import Style, terminal_lines

if TYPE_CHECKING:
    from ncclscope.report.page_details import PageDetails

_WIDEST = 160


def _summary_of_operations(
    model: Model, arguments: argparse.Namespace, by: tuple[str, ...]
) -> Summary:
    """The summary by this machine, or by `--on` of a long run; of what is kept neither is asked."""
    selection = selection_of(model, arguments)
    keeps = is_kept(model, selection, by)
    sums = kept_sums(model) if keeps else None
    has_all = sums is not None and kept_account(model) is not None
    with work_on(None if has_all else engine_on(arguments.on), model) as work:

        def sums_of(model: Model, selection: Selection, by: tuple[str, ...]) -> ReportSums:
            made = sums or work.sums(model, selection, by)
            if keeps and sums is None:
                keep_sums(model, made)
            return made

        account_of = partial(kept_waiting_account, make=work.waiting_account)
        return summary_from_operations.summarize(model, selection, by, account_of, sums_of)


def _summary(model: Model, arguments: argparse.Namespace, by: tuple[str, ...]) -> Summary:
    if has_counters_only(model):
        for option in ("rank", "since", "until", "last"):
            if getattr(arguments, option) is not None:
                if model.completeness.paused_processes:  # some operations are on record
                    return _summary_of_operations(model, arguments, by)
                message = f"cannot report --{option} of {model.path}: it has totals only"
                raise UsageError(message, "Record with --mode trace to be able to")
        communicators = communicator_rows(model, arguments.comm) if arguments.comm else None
        return summary_from_counters.summarize(model, communicators, arguments.op, by)
    return _summary_of_operations(model, arguments, by)


def _exposure(model: Model, files: list[str]) -> KernelExposure | None:
    """From the capture's own traces of kernels, and from files of other profilers."""
    if not files and not model.training.kernel_files:
        return None
    from ncclscope.ingest.kernel_files import read_kernels, traces_of  # most reports need none

    traces = traces_of(model)
    for name in files:
        own = read_kernels(Path(name))
        if not own:
            message = f"cannot use {name}: it holds no CUDA kernels"
            raise UsageError(message, "Profile with CUDA activities (PyTorch) or -t cuda (nsys)")
        traces += own
    exposure = kernel_exposure(model, traces)
    if exposure is None and files:
        message = f"cannot use {', '.join(files)}: no process of {model.path} fits"
        raise UsageError(message, "Name the files rank0…, rank1…, or give those of the same run")
    return exposure


def _page(
    model: Model,
    summary: Summary,
    groups: tuple[Group, ...],
    topology: Topology,
    arguments: argparse.Namespace,
) -> str:
    """The report as a page."""
    # Most reports go to a terminal.
    from ncclscope.report.html import as_html

    return as_html(summary, groups, topology, _details(model, arguments))


def _details(model: Model, arguments: argparse.Namespace) -> "PageDetails | None":
    """Findings and pictures of the selected operations; None where there are totals only."""
    from ncclscope.analysis.time_selection import model_between
    from ncclscope.diagnose.diagnosis import diagnose
    from ncclscope.report.page_details import page_details
    from ncclscope.snapshot.process import unfinished_snapshots

    if has_counters_only(model) and not len(model.tables["operations"]["event"]):
        return None
    selection = selection_of(model, arguments)
    snapshots = unfinished_snapshots(model) if selection.until_ns is None else None
    findings = diagnose(model_between(model, selection), snapshots).findings
    names = {model.communicator_names[row] for row in selection.communicators or ()}
    chosen = tuple(
        finding
        for finding in findings
        if (selection.ranks is None or set(selection.ranks) & set(finding.ranks))
        and (selection.communicators is None or names & set(finding.communicators))
    )
    return page_details(model, selection, chosen)


def _style(arguments: argparse.Namespace) -> Style:
    selects = arguments.comm or arguments.op
    most = {"most_rows": 10_000} if selects else {}
    return Style(output_width(_WIDEST), uses_colour(), **most)


def run(arguments: argparse.Namespace) -> int:
    """Prints or writes the report."""
    by = parse_by(arguments.by or ["+communicator"])
    check_sort(arguments.sort, by)
    if arguments.html:
        check_file(Path(arguments.html))
    model = open_model_with_progress(resolve_capture(arguments.capture), arguments.on)
    keep_freed_memory()
    summary = replace(_summary(model, arguments, by), exposure=_exposure(model, arguments.kernels))
    groups = sorted_groups(summary.groups, arguments.sort)
    topology = topology_of(model.path)
    if arguments.json:
        print(json.dumps(as_json(summary, groups, topology), indent=2, allow_nan=False))
    elif arguments.csv:
        print(as_csv(summary, groups), end="")
    elif arguments.html:
        path = Path(arguments.html)
        write_text(path, _page(model, summary, groups, topology, arguments))
        about = sys.stderr if is_stdout(path) else sys.stdout
        print(summary.completeness.line(), file=about)
        if size_written(path) is not None:
            print(f"written: {printable(arguments.html)}", file=about)
    else:
        for line in terminal_lines(summary, groups, _style(arguments), topology):
            print(line)
    missing = summary.completeness.missing()
    if arguments.require_complete and missing:
        raise IncompleteError(f"{model.path} is incomplete: {'; '.join(missing)}")
    return 0
