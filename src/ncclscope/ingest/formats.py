"""Recognises the format of files, and imports many files of one format as one model."""

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ncclscope.errors import FormatError, UsageError
from ncclscope.humanize import plural
from ncclscope.ingest import nccl_log
from ncclscope.ingest.call_stacks import CallStacks
from ncclscope.ingest.files import head_of
from ncclscope.ingest.format_names import FORMAT_NAMES
from ncclscope.ingest.model_builder import ImportBuilder
from ncclscope.ingest.records import Format, ImportReport
from ncclscope.model.completeness import not_read
from ncclscope.model.model import Model, Progress
from ncclscope.regular_files import kind_of_file

FORMATS: dict[str, Format] = {
    name: importlib.import_module(f"{__package__}.{name.replace('-', '_')}").FORMAT
    for name in FORMAT_NAMES
}
_LOG = nccl_log.FORMAT


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """The files of an import."""

    form: Format
    files: tuple[Path, ...]
    logs: tuple[Path, ...]  # NCCL's own, for the topology
    skipped: int  # files in directories that have no known format


def plan_import(paths: Iterable[Path], wanted: str | None) -> ImportPlan:
    """The files of one format among these, and NCCL's logs, which may come with any format.
    `wanted`: the format's name; None: the only one that the files have.
    """
    by_format: dict[str, list[Path]] = {}
    skipped = 0
    for path, is_named in _files(paths):
        form = format_of(path)
        if wanted and is_named and form is not _LOG:
            form = FORMATS[wanted]
        if form is not None and (wanted in (None, form.name) or form is _LOG):
            by_format.setdefault(form.name, []).append(path)
        elif is_named:
            message = f"cannot import {path}: it is of no known format"
            raise UsageError(message, f"Formats are {', '.join(FORMATS)}; --from takes its name")
        else:
            skipped += 1
    logs = by_format.pop(_LOG.name, [])
    if len(by_format) > 1:
        listed = ", ".join(
            f"{name} ({plural(len(files), 'file')})" for name, files in sorted(by_format.items())
        )
        message = f"cannot import several formats at once: {listed}"
        raise UsageError(message, "Choose one with --from")
    for name, files in by_format.items():
        return ImportPlan(FORMATS[name], tuple(files), tuple(logs), skipped)
    if not logs:
        message = f"nothing to import: {plural(skipped, 'file')}, none of a known format"
        raise UsageError(message, f"Formats are {', '.join(FORMATS)}")
    return ImportPlan(_LOG, tuple(logs), tuple(logs), skipped)


def _files(paths: Iterable[Path]) -> list[tuple[Path, bool]]:
    """Files, and all files in directories, once each; and whether the user named the file."""
    files: dict[Path, bool] = {}
    for path in paths:
        if path.is_dir():
            for entry in sorted(path.rglob("*")):
                if entry.is_file() and not entry.is_symlink():
                    files.setdefault(entry, False)
        elif path.exists():
            kind = kind_of_file(path.stat().st_mode)
            if kind:
                message = f"cannot import {path}: it is {kind}, not a regular file"
                raise UsageError(message, "Save what it gives to a file, and import that")
            files[path] = True
        else:
            hint = "Name files that another tool wrote, or a directory of them"
            raise UsageError(f"cannot import {path}: no such file or directory", hint)
    return list(files.items())


def format_of(path: Path) -> Format | None:
    """The format of a file, None for an unknown one."""
    head = head_of(path)
    return next((form for form in FORMATS.values() if head and form.matches(head, path)), None)


def import_files(
    plan: ImportPlan,
    folder: Path,
    progress: Progress | None = None,
    stacks: CallStacks | None = None,
) -> Model:
    """The model of all files, made in a folder. Files that cannot be read are named in its notes;
    where none can be read, that is an error. `stacks` is filled with where operations were called.
    """
    report, problems = ImportReport(), []
    builder = ImportBuilder(folder, plan.form, CallStacks() if stacks is None else stacks)
    for number, path in enumerate(plan.files):
        if progress:
            progress(number, len(plan.files))
        try:
            builder.add(plan.form.read(path, report))
        except FormatError as error:
            problems.append(error)
            report.note(not_read(error))
            report.lose("files cannot be read")
    if problems and len(problems) == len(plan.files):
        raise problems[0]
    if plan.skipped:
        report.note(f"{plural(plan.skipped, 'file')} of other formats left out")
    return builder.finish(report, len(plan.files))
