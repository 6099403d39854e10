"""Which format files have, and many files of one format as one model."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ncclscope.errors import FormatError, UsageError
from ncclscope.humanize import plural
from ncclscope.ingest import (
    chrome,
    comma,
    flight_recorder,
    inspector,
    nccl_log,
    nccl_tests,
    ncclsee,
    nsys,
)
from ncclscope.ingest.files import head_of
from ncclscope.ingest.model_builder import ImportBuilder
from ncclscope.ingest.records import Format, ImportReport
from ncclscope.model.model import Model, Progress

# In the order in which files are held against them: the surest signs first.
FORMATS = {
    module.FORMAT.name: module.FORMAT
    for module in (
        nsys, inspector, ncclsee, chrome, comma, flight_recorder, nccl_tests, nccl_log,
    )
}  # fmt: skip
_LOG = nccl_log.FORMAT


@dataclass(frozen=True, slots=True)
class Chosen:
    """What an import is made of."""

    form: Format
    files: tuple[Path, ...]
    logs: tuple[Path, ...]  # NCCL's own, for the topology
    skipped: int  # files of directories that are of no format


def choose(paths: Iterable[Path], wanted: str | None) -> Chosen:
    """Sorts files by format. NCCL's logs may come along with any other format, and only one."""
    found: dict[str, list[Path]] = {}
    skipped = 0
    for path, is_named in _files(paths):
        form = format_of(path)
        if wanted and is_named and form is not _LOG:
            form = FORMATS[wanted]
        if form is not None and (wanted in (None, form.name) or form is _LOG):
            found.setdefault(form.name, []).append(path)
        elif is_named:
            message = f"cannot import {path}: it is of no known format"
            raise UsageError(message, f"Formats are {', '.join(FORMATS)}; --from takes its name")
        else:
            skipped += 1
    logs = found.pop(_LOG.name, [])
    if len(found) > 1:
        listed = ", ".join(
            f"{name} ({plural(len(of), 'file')})" for name, of in sorted(found.items())
        )
        message = f"cannot import several formats at once: {listed}"
        raise UsageError(message, "Choose one with --from")
    for name, files in found.items():
        return Chosen(FORMATS[name], tuple(files), tuple(logs), skipped)
    if not logs:
        message = f"nothing to import: {plural(skipped, 'file')}, none of a known format"
        raise UsageError(message, f"Formats are {', '.join(FORMATS)}")
    return Chosen(_LOG, tuple(logs), tuple(logs), skipped)


def _files(paths: Iterable[Path]) -> list[tuple[Path, bool]]:
    """Files, and all files in directories, once; whether the user named them."""
    found: dict[Path, bool] = {}
    for path in paths:
        if path.is_dir():
            for entry in sorted(path.rglob("*")):
                if entry.is_file() and not entry.is_symlink():
                    found.setdefault(entry, False)
        elif path.exists():
            found[path] = True
        else:
            hint = "Name files that another tool wrote, or a directory of them"
            raise UsageError(f"cannot import {path}: no such file or directory", hint)
    return list(found.items())


def format_of(path: Path) -> Format | None:
    """The first format that a file fits."""
    head = head_of(path)
    return next((form for form in FORMATS.values() if head and form.fits(head, path)), None)


def gather(chosen: Chosen, folder: Path, progress: Progress | None = None) -> Model:
    """The model of all files, made in a folder of its own. Files that cannot be read are named; it
    is an error only where there is no other.
    """
    found, gathering, problems = ImportReport(), ImportBuilder(folder, chosen.form), []
    for number, path in enumerate(chosen.files):
        if progress:
            progress(number, len(chosen.files))
        try:
            gathering.add(chosen.form.read(path, found))
        except FormatError as error:
            problems.append(error)
            found.note(f"not read: {error}")
            found.lose("files cannot be read")
    if problems and len(problems) == len(chosen.files):
        raise problems[0]
    if chosen.skipped:
        found.note(f"{plural(chosen.skipped, 'file')} of other formats left out")
    return gathering.finish(found, len(chosen.files))
