"""Writes docs/schema.md from the tables' descriptions: `python tools/schema_page.py`."""

from pathlib import Path
from textwrap import fill

from ncclscope.model.detail_schema import DETAILS
from ncclscope.model.schema import (
    FORMS,
    LEVELS,
    SCHEMA_VERSION,
    SMALL_TABLES,
    SOURCES,
    STAMPS,
    STATES,
    TABLES,
    Column,
)
from ncclscope.model.sql_views import SHOWN, SQL_TYPES, shown_columns

PAGE = Path(__file__).resolve().parent.parent / "docs" / "schema.md"
_ROWS = {
    "operations": "one collective, send or receive on one rank: a call or a replay of one",
    "instances": "the operations of all ranks that belong together",
    "communicators": "one communicator of NCCL",
    "members": "one rank of one communicator",
    "windows": "a time in which a process recorded single calls, of processes that paused",
    "counters": "what a process counted under one key, exactly, in every mode: calls or works",
    "counter_histograms": "works of one counter that took about the same time",
    "steps": "one training step of one process, of jobs that recorded ranges",
    "phases": "one stretch of a phase of the training loop, likewise",
    "modules": "one module of the user's model that operations move data of",
    "processes": "one recorded process",
    "gpus": "one GPU that a process used",
    "nodes": "one host, or more exactly one clock: containers with clocks of their own are apart",
    "system": "one counter of the machine at one sample of `ncclscope run --system`",
    "channels": "one channel of one operation on the GPU",
    "launches": "one kernel launch",
    "proxy_ops": "network work for one channel and direction",
    "proxy_steps": "one step of a proxy op; only captures of mode `full` have them",
    "ranges": "one range or mark of the job's program: of NVTX, PyTorch or ncclscope.torch",
}


def _listed(begin: str, names: tuple[str, ...]) -> str:
    """An item of a list that ends in names."""
    text = f"{begin} {', '.join(f'`{name}`' for name in names)}"
    return fill(text, 100, subsequent_indent="  ", break_on_hyphens=False)


_UNITS = {"_ns": "ns", "_bytes": "bytes"}
_HEAD = f"""\
# Tables

<!-- Made by tools/schema_page.py from src/ncclscope/model/schema.py: do not edit. -->

What a capture means, as [Python](python.md) shows it and [`export`](verbs/export.md) writes it.
This is schema **version {SCHEMA_VERSION}**.

- Within a version, columns and tables may be added, and columns of names may get names that are not
  listed here. Programs must ignore what they do not know. A column that goes, or changes its type,
  unit or meaning, makes a new version. A dataset tells its version in `schema.json`
  (`schema_version`) and in each file's metadata (`ncclscope_schema`).
- NULL: not known, or does not apply.
- Times are on one clock for the whole capture: CLOCK_MONOTONIC of its first node. Wall clock (ns
  since 1970) is time + `realtime_offset_ns`, from `schema.json` or `Capture.realtime_offset_ns`.
- Integers are signed: `tinyint`, `smallint`, `integer` and `bigint` have 1, 2, 4 and 8 bytes.
- A column that is called like a row's number (`communicator`, `process` …) refers to that row;
  but `processes.gpu` is a text.
- In files, `node` of `operations` is in the names of their folders
  ([Parquet](verbs/export.md#parquet)); datasets of version 1 and 2 have it in the files. They are
  read as well.
- `counters` and `counter_histograms` count everything that was recorded: an export of some
  operations has all of them.
{_listed("- `export --to parquet` writes", (*TABLES, *SMALL_TABLES))};
  `export --to jsonl` and `csv` write `operations`.
  {", ".join(f"`{name}`" for name in ("system", *DETAILS))} exist in Python only, where they
  are made when they are asked for.
"""
_CODES = (
    ("form", FORMS, {}),
    (
        "source",
        SOURCES,
        {
            "gpu": "stamps of the GPU, all valid",
            "gpu-repaired": "stamps of the GPU, some of which NCCL gave to another operation",
            "gpu-event": "CUDA events around its launch, their excess taken off; the error is at "
            "most a tenth",
            "gpu-partial": "stamps of the GPU, of some of the channels",
            "gpu-event-rough": "as gpu-event, with a larger error",
            "gpu-event-upper": "CUDA events around its launch: an upper bound, because the excess "
            "is not known, or other operations share the launch",
            "gpu-early": "stamps of the GPU that may come before the end: a lower bound",
            "proxy": "the network proxy's times, after what ran before on the same stream",
            "host": "times at which the host noticed",
            "enqueue": "times of the enqueuing on the host",
            "none": "no duration; `reason` says why",
        },
    ),
    (
        "state",
        STATES,
        {
            "done": "it ended",
            "in flight": "it had begun and not ended when the capture ended",
            "never launched": "its group call did not return",
            "captured": "recorded into a CUDA graph; its replays are operations of their own",
            "unknown": "nothing tells",
        },
    ),
    (
        "level",
        LEVELS,
        {
            "call": "calls of the user",
            "work": "works that NCCL made of them, replays included",
            "copy-engine": "works that copy engines carried out",
        },
    ),
    (
        "stamp",
        STAMPS,
        {
            "valid": "believed as NCCL gave it",
            "repaired": "found with another operation",
            "recovered": "of an operation for which NCCL reported no kernel",
            "rejected": "it cannot be this operation's",
            "missing": "NCCL gave none",
        },
    ),
)


def _type(column: Column) -> str:
    return "varchar" if column.words else SQL_TYPES[column.dtype]


def _unit(column: Column) -> str:
    return next((unit for end, unit in _UNITS.items() if column.name.endswith(end)), "")


def _table(name: str) -> str:
    lines = [f"## {name}", "", f"A row is {_ROWS[name]}.", ""]
    lines += ["| column | type | unit | meaning |", "|---|---|---|---|"]
    lines += [
        f"| `{c.name}` | {_type(c)} | {_unit(c)} | {c.meaning} |" for c in shown_columns(name)
    ]
    return "\n".join(lines) + "\n"


def _codes() -> str:
    lines = ["## Names", ""]
    for column, names, meanings in _CODES:
        if not meanings:
            lines += [f"`{column}`: {', '.join(f'`{name}`' for name in names)}.", ""]
            continue
        lines += [f"| `{column}` | meaning |", "|---|---|"]
        lines += [f"| `{name}` | {meanings[name]} |" for name in names] + [""]
    lines += [
        "`function`, `algorithm`, `protocol` and `variant` are NCCL's names. Datatypes are written",
        "`float32`, `bfloat16`, `uint8` and so on. `reason` is a sentence, empty where `source` is",
        "`gpu`.",
    ]
    return "\n".join(lines) + "\n"


def page() -> str:
    """The text of docs/schema.md."""
    return "\n".join([_HEAD, *map(_table, SHOWN), _codes()])


if __name__ == "__main__":
    PAGE.write_text(page())
