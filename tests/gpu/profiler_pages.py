"""Puts what tests/gpu/profilers.py measured into docs/measurements/profilers.md, and the tables of
training into docs/comparison.md.

`python -m tests.gpu.profiler_pages DIR [NAME…]`, anywhere; DIR has the JSON files of some pieces.
The pages keep their sections of the others. Profilers that are named are left out: those whose runs
are no measurement.
"""

import re
import sys
import textwrap
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from benchmarks.results import ROOT
from benchmarks.results import table as markdown
from ncclscope.bench.profilers import comparison_tables as tables
from ncclscope.bench.profilers.comparison_files import read_run
from ncclscope.bench.training import files as training
from ncclscope.humanize import NOTHING
from ncclscope.report.tables import Table

CALLS_PAGE = ROOT / "docs" / "measurements" / "profilers.md"
TRAINING_PAGE = ROOT / "docs" / "comparison.md"
_WIDTH = 120  # of Markdown
CALLS, TRAINING = "gpu-profilers", "gpu-training"  # parts of these pages
TITLES = {
    "calls": "Two ranks of two hosts, 1 KiB and 32 MiB",
    "near": "Two ranks of one host, 1 KiB and 32 MiB",
    "near-large": "Two ranks of one host, 1 GiB",
    "near-four": "Four ranks of one host, 1 KiB and 32 MiB",
    "near-four-large": "Four ranks of one host, 1 GiB",
    "two-by-two": "Four ranks of two hosts, 1 KiB and 32 MiB",
    "two-by-two-large": "Four ranks of two hosts, 1 GiB",
    "large": "Two ranks of two hosts, 1 GiB",
    "four": "Four ranks of four hosts, 1 KiB and 32 MiB",
    "four-large": "Four ranks of four hosts, 1 GiB",
    "kill": "Ranks that end by SIGKILL",
}
TITLES |= {f"{name}-cost": f"{title}: cost" for name, title in TITLES.items() if name != "kill"}
TITLES |= {
    f"{name}-200": re.sub("1 (GiB|KiB)", r"200 calls of 1 \1", TITLES[name])
    for name in ("calls", "near", "near-four", "two-by-two", "large", "two-by-two-large")
}
MODELS = {"densenet121": "DenseNet121", "gpt": "GPT"}
READING = "How to read these two tables"


def bullets(lines: Iterable[str]) -> str:
    """A list in Markdown."""
    return "\n".join(
        textwrap.fill(
            f"- {line}", _WIDTH, subsequent_indent="  ",
            break_long_words=False, break_on_hyphens=False,
        )
        for line in lines
    )  # fmt: skip


def as_markdown(table: Table) -> str:
    """A table with its title and notes; columns without any value are left out."""
    rows = [[str(cell).replace("|", "/") for cell in row] for row in table.rows]
    kept = [
        place
        for place in range(len(table.columns))
        if any(row[place] not in ("", NOTHING) for row in rows)
    ]
    titles = [table.columns[place].title for place in kept]
    body = markdown(titles, [[row[place] for place in kept] for row in rows])
    return f"**{table.title}**\n\n{body}" + (f"\n\n{bullets(table.notes)}" if table.notes else "")


def with_times(table: Table) -> Table:
    """The table of times without rows that have none: these are a note for each profiler."""
    reported = [column.title for column in table.columns].index("reported µs")
    rows = [tuple(map(str, row)) for row in table.rows]
    missing: dict[str, dict[tuple[str, str], list[str]]] = {}
    for row in rows:
        if row[reported] == NOTHING:
            profiler, operation, size, remark = row[0], row[1], row[2], row[-1]
            missing.setdefault(profiler, {}).setdefault((operation, remark), []).append(size)
    notes = [
        f"{profiler} has no times of "
        + "; ".join(f"{name} {' and '.join(sizes)} ({why})" for (name, why), sizes in cases.items())
        for profiler, cases in missing.items()
    ]
    kept = tuple(row for row in rows if row[reported] != NOTHING)
    return replace(table, rows=kept, notes=(*table.notes, *notes))


def bench_section(path: Path, left_out: Collection[str]) -> str:
    """What one piece of the benchmark found, of profilers that had their turn. A single round says
    nothing about cost.
    """
    whole = read_run(path)
    ran = {trial.profiler for trial in whole.trials} - set(left_out)
    run = replace(
        whole,
        profilers=tuple(own for own in whole.profilers if own.name in ran),
        trials=tuple(trial for trial in whole.trials if trial.profiler not in left_out),
    )
    comparison = run.comparison
    if path.stem == "kill":
        chosen = [tables.loss_table(comparison)]
    elif path.stem.endswith("-200"):
        chosen = [tables.coverage_table(comparison)]
    elif path.stem.endswith("-cost"):
        chosen = [tables.cost_table(comparison, every_case=False)]
    elif path.stem not in ("calls", "near"):
        chosen = [tables.coverage_table(comparison), with_times(tables.times_table(comparison))]
    else:
        chosen = [
            tables.coverage_table(comparison),
            with_times(tables.times_table(comparison)),
            tables.cost_table(comparison, every_case=False),
            tables.loss_table(comparison),
        ]
    parts = [f"### {TITLES[path.stem]}", "  \n".join(run.heading)]
    return "\n\n".join([*parts, *(as_markdown(own) for own in chosen if own.rows)])


def training_run(path: Path, left_out: Collection[str]) -> training.TrainingRun:
    """One training job, of profilers that had their turn."""
    run = training.read_run(path)
    ran = {trial.profiler for trial in run.trials} - set(left_out)
    return replace(run, profilers=tuple(own for own in run.profilers if own.name in ran))


def training_sections(
    folder: Path, left_out: Collection[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """By title, the sections of steps and communication with how to read them, and those of calls
    by function with what cannot be compared.
    """
    steps, functions, notes = {}, {}, dict[str, None]()
    for name, title in MODELS.items():
        path = folder / f"{name}.json"
        if not path.is_file():
            continue
        run = training_run(path, left_out)
        heading = "  \n".join(run.heading)
        first, *others = run.tables
        remarks = [f"{row.profiler}: {row.remark}" for row in run.rows if row.remark]
        notes |= dict.fromkeys(note for note in first.notes if note not in remarks)
        parts = [f"### {title}", heading, as_markdown(replace(first, notes=tuple(remarks)))]
        steps[title] = "\n\n".join(parts)
        limits = [f"{own.name}: {'; '.join(own.limits)}" for own in run.profilers if own.limits]
        parts = [f"### Training: {title}", heading, *map(as_markdown, others)]
        parts += ["**what cannot be compared**", bullets(limits)]
        functions[f"Training: {title}"] = "\n\n".join(parts)
    if notes:
        steps[READING] = f"### {READING}\n\n{bullets(notes)}"
    return steps, functions


def sections_of(body: str) -> dict[str, str]:
    """The sections of a page's part, by their titles."""
    parts = re.split(r"^(?=### )", body, flags=re.M)
    return {
        part.splitlines()[0].removeprefix("### "): part.strip() for part in parts if part.strip()
    }


def put(page: Path, part: str, sections: dict[str, str], order: Collection[str]) -> None:
    """Writes these sections of a page's part, in order; the others stay."""
    before, rest = page.read_text().split(f"<!-- begin {part} -->\n")
    body, after = rest.split(f"<!-- end {part} -->")
    merged = sections_of(body) | sections
    body = "\n\n".join(merged[title] for title in order if title in merged)
    page.write_text(f"{before}<!-- begin {part} -->\n{body}\n<!-- end {part} -->{after}")


def main(folder: Path, left_out: Collection[str]) -> None:
    """Writes the sections of the pieces that the folder has."""
    paths = {title: folder / f"{name}.json" for name, title in TITLES.items()}
    sections = {
        title: bench_section(path, left_out) for title, path in paths.items() if path.is_file()
    }
    steps, functions = training_sections(folder, left_out)
    order = [*TITLES.values(), *(f"Training: {title}" for title in MODELS.values())]
    put(CALLS_PAGE, CALLS, sections | functions, order)
    put(TRAINING_PAGE, TRAINING, steps, [*MODELS.values(), READING])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
