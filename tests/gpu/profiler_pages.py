"""Puts what tests/gpu/profilers.py measured into docs/comparison.md.

`python -m tests.gpu.profiler_pages DIR [NAME…]`, anywhere; DIR has the JSON files of all pieces.
Profilers that are named are left out: those whose runs are no measurement.
"""

import re
import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from benchmarks.results import ROOT
from benchmarks.results import table as markdown
from ncclscope.bench.profilers import comparison_tables as tables
from ncclscope.bench.profilers.comparison_files import read_run
from ncclscope.bench.training import files as training
from ncclscope.report.tables import Table

PAGE = ROOT / "docs" / "comparison.md"
SECTION = "gpu-profilers"
TITLES = {
    "calls": "Two ranks of two hosts, 1 KiB and 32 MiB",
    "near": "Two ranks of one host, 1 KiB and 32 MiB",
    "near-large": "Two ranks of one host, 1 GiB",
    "near-four": "Four ranks of one host, 1 KiB",
    "large": "Two ranks of two hosts, 1 GiB",
    "four": "Four ranks of four hosts, 1 KiB",
    "kill": "Ranks that end by SIGKILL",
}
MODELS = ("densenet121", "gpt")


def as_markdown(table: Table) -> str:
    """A table with its title and notes; columns without any value are left out."""
    rows = [[str(cell).replace("|", "/") for cell in row] for row in table.rows]
    kept = [
        place
        for place in range(len(table.columns))
        if any(row[place] not in ("", "–") for row in rows)
    ]
    titles = [table.columns[place].title for place in kept]
    body = markdown(titles, [[row[place] for place in kept] for row in rows])
    return f"**{table.title}**\n\n{body}"


def bench_section(path: Path, left_out: Collection[str]) -> str:
    """What one piece of the benchmark found. A single round says nothing about cost."""
    whole = read_run(path)
    run = replace(
        whole,
        profilers=tuple(own for own in whole.profilers if own.name not in left_out),
        trials=tuple(trial for trial in whole.trials if trial.profiler not in left_out),
    )
    comparison = run.comparison
    if path.stem == "kill":
        chosen = [tables.loss_table(comparison)]
    elif path.stem not in ("calls", "near"):
        chosen = [tables.coverage_table(comparison), tables.times_table(comparison)]
    else:
        chosen = [
            tables.coverage_table(comparison),
            tables.times_table(comparison),
            tables.cost_table(comparison, every_case=False),
            tables.loss_table(comparison),
        ]
    parts = [f"### {TITLES[path.stem]}", "  \n".join(run.heading)]
    return "\n\n".join([*parts, *(as_markdown(own) for own in chosen if own.rows)])


def training_section(path: Path, left_out: Collection[str]) -> str:
    """What one training job found, of profilers that came to an end."""
    run = training.read_run(path)
    ran = {trial.profiler for trial in run.trials} - set(left_out)
    run = replace(run, profilers=tuple(own for own in run.profilers if own.name in ran))
    parts = [f"### Training: {path.stem}", "  \n".join(run.heading)]
    return "\n\n".join([*parts, *map(as_markdown, run.tables)])


def main(folder: Path, left_out: Collection[str]) -> None:
    """Writes the section of the page."""
    parts = []
    for name in (*TITLES, *MODELS):
        path = folder / f"{name}.json"
        if path.is_file():
            section_of = training_section if name in MODELS else bench_section
            parts.append(section_of(path, left_out))
    body = "\n\n".join(parts)
    section = f"<!-- begin {SECTION} -->\n{body}\n<!-- end {SECTION} -->"
    pattern = re.compile(rf"<!-- begin {SECTION} -->.*?<!-- end {SECTION} -->", re.S)
    PAGE.write_text(pattern.sub(lambda _: section, PAGE.read_text()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
