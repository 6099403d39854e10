"""Puts what tests/gpu/profilers.py measured into docs/comparison.md.

`python -m tests.gpu.profiler_pages DIR [NAME…]`, anywhere; DIR has the JSON files of some pieces.
The page keeps its sections of the others. Profilers that are named are left out: those whose runs
are no measurement.
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
    f"{name}-200": TITLES[name].replace("1 GiB", "200 calls of 1 GiB")
    for name in ("large", "two-by-two-large")
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


def sections_of(body: str) -> dict[str, str]:
    """The sections of a page's part, by their titles."""
    parts = re.split(r"^(?=### )", body, flags=re.M)
    return {
        part.splitlines()[0].removeprefix("### "): part.strip() for part in parts if part.strip()
    }


def main(folder: Path, left_out: Collection[str]) -> None:
    """Writes the sections of the pieces that the folder has; the others stay."""
    page = PAGE.read_text()
    before, rest = page.split(f"<!-- begin {SECTION} -->")
    body, after = rest.split(f"<!-- end {SECTION} -->")
    sections = sections_of(body)
    titles = TITLES | {model: f"Training: {model}" for model in MODELS}
    for name, title in titles.items():
        path = folder / f"{name}.json"
        if path.is_file():
            section_of = training_section if name in MODELS else bench_section
            sections[title] = section_of(path, left_out)
    body = "\n\n".join(sections[title] for title in titles.values() if title in sections)
    parts = (f"{before}<!-- begin {SECTION} -->", body, f"<!-- end {SECTION} -->{after}")
    PAGE.write_text("\n".join(parts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
