"""The sections of a report about training: steps, where their time goes, modules, parallelism."""

from typing import Any

from ncclscope.analysis.groups import Group
from ncclscope.analysis.summary import Summary
from ncclscope.analysis.training_steps import StepSummary
from ncclscope.humanize import NOTHING, amount, duration, percent, plural
from ncclscope.report.estimates import ESTIMATED, bandwidth_cell, legend, marked, total_cell
from ncclscope.report.sample_json import bounds_json
from ncclscope.report.tables import Bar, Cell, Column, Table

# How steps are known, in words.
_ORIGINS = {
    "marks": "marked by the program with ncclscope.torch",
    "optimizer": "each ends with the optimizer's step",
    "ranges": "numbered ranges of the program",
    "root calls": "calls of the root module",
    "period": "inferred from the period of NCCL's calls",
}
_MOST_STEPS = 10_000  # in JSON


def training_tables(summary: Summary, most: int) -> list[Table]:
    """All of these sections; none where the capture has no training context."""
    steps = summary.steps
    tables = [_steps(steps), _parts(steps)] if steps else []
    if summary.modules:
        tables.append(_communication("communication by module", "module", summary.modules, most))
    if summary.dimensions:
        tables.append(
            _communication("communication by parallelism", "dimension", summary.dimensions, most)
        )
    return tables


def _steps(steps: StepSummary) -> Table:
    columns = (
        Column("steps"), Column("median"), Column("p99"), Column("longest"), Column("in step"),
        Column("tokens/s"), Column("MFU"),
    )  # fmt: skip
    tokens = steps.tokens_per_second
    row: tuple[Cell, ...] = (
        f"{steps.first:,} to {steps.last:,}", duration(steps.median_ns), duration(steps.p99_ns),
        duration(steps.longest_ns), f"{steps.longest_step:,}",
        NOTHING if tokens is None else f"{tokens:,.0f}", percent(steps.mfu),
    )  # fmt: skip
    notes = [f"steps: {_ORIGINS.get(steps.origin, steps.origin)}"]
    if steps.warm_up:
        first = "step" if steps.warm_up == 1 else plural(steps.warm_up, "step")
        notes.append(f"without the first {first}, which took longer")
    if steps.pauses:
        notes.append(
            f"{plural(steps.pauses, 'step')} took over three times the median: a checkpoint, an "
            "evaluation or another pause"
        )
    if steps.under_way is not None:
        notes.append(f"step {steps.under_way:,} has not ended")
    if steps.mfu is not None:
        notes.append(
            "MFU: an estimate, 6 x parameters x tokens unless the program said its FLOPs, of the "
            "GPU's dense bf16 peak"
        )
    kept = [place for place, cell in enumerate(row) if cell != NOTHING]
    return Table(
        "training steps", tuple(columns[place] for place in kept),
        (tuple(row[place] for place in kept),), tuple(notes),
    )  # fmt: skip


def _parts(steps: StepSummary) -> Table:
    parts, rows = steps.parts, list[tuple[Cell, ...]]()

    def add(name: str, value: float | None) -> None:
        if value is not None and (value > 0 or name.startswith("NCCL")):
            share = value / parts.length if parts.length else 0.0
            rows.append((name, duration(value), percent(share), Bar(share)))

    add("data: the host waits for a batch", parts.data)
    add("forward", parts.forward)
    add("backward", parts.backward)
    add("optimizer", parts.optimizer)
    add("host, not known what", parts.rest)
    add("NCCL on the GPU, exposed at most", parts.nccl)
    add("NCCL: of it waiting for other ranks", parts.wait)
    add("NCCL on the computing stream, exposed at least", parts.exposed_low)
    columns = (Column("", right=False), Column("a step"), Column("share"), Column("", right=False))
    notes = (
        "mean over ranks and steps; phases are times of the host, which runs ahead of the GPU",
        "NCCL overlaps with them: what the GPU computes meanwhile is not known",
    )
    return Table("where a step's time goes", columns, tuple(rows), notes)


def _communication(title: str, key: str, groups: tuple[Group, ...], most: int) -> Table:
    """Groups by one key, those with most GPU time first."""
    largest = max((_time_ns(group) for group in groups), default=0)
    columns = (
        Column(key, right=False), Column("calls"), Column("bytes"), Column("GPU time"),
        Column("", right=False, drop=3), Column("busbw"), Column("wire", drop=2),
        Column("wait", drop=1),
    )  # fmt: skip
    shown = sorted(groups, key=lambda group: (-_time_ns(group), str(group.keys[key])))
    rows = tuple(
        (
            str(group.keys[key]), f"{group.calls:,}", amount(group.bytes),
            total_cell(group), Bar(_time_ns(group) / largest if largest else 0.0),
            bandwidth_cell(group, group.busbw_gbs), bandwidth_cell(group, group.busbw_wire_gbs),
            marked(ESTIMATED if group.sample else "", percent(group.wait_share)),
        )
        for group in shown[:most]
    )  # fmt: skip
    notes = [f"{plural(len(shown) - most, 'more row')} not shown"] if len(shown) > most else []
    return Table(title, columns, rows, (*notes, *legend(shown[:most])))


def _time_ns(group: Group) -> int:
    times = group.durations
    return times.total_ns if times and times.grade == "gpu" else 0


def training_json(summary: Summary) -> dict[str, Any]:
    """The same for JSON: fields that captures without a training context do not have."""
    if not (summary.steps or summary.modules or summary.dimensions):
        return {}
    return {
        "training": {
            "steps": _steps_json(summary.steps) if summary.steps else None,
            "modules": [_group_json("module", group) for group in summary.modules],
            "dimensions": [_group_json("dimension", group) for group in summary.dimensions],
        }
    }


def _steps_json(steps: StepSummary) -> dict[str, Any]:
    parts = steps.parts
    return {
        "known_by": steps.origin,
        "first": steps.first,
        "last": steps.last,
        "under_way": steps.under_way,
        "warm_up_steps": steps.warm_up,
        "pauses": steps.pauses,
        "median_ns": round(steps.median_ns),
        "p99_ns": round(steps.p99_ns),
        "longest_ns": round(steps.longest_ns),
        "longest_step": steps.longest_step,
        "tokens_per_second": steps.tokens_per_second,
        "mfu_estimate": steps.mfu,
        "mean_step_ns": {
            name: None if value is None else round(value)
            for name, value in (
                ("length", parts.length), ("data", parts.data), ("forward", parts.forward),
                ("backward", parts.backward), ("optimizer", parts.optimizer),
                ("rest", parts.rest), ("nccl_exposed_at_most", parts.nccl),
                ("nccl_wait", parts.wait), ("nccl_exposed_at_least", parts.exposed_low),
            )
        },
        "lengths_ns": [[step, round(ns)] for step, ns in steps.lengths_ns[:_MOST_STEPS]],
    }  # fmt: skip


def _group_json(key: str, group: Group) -> dict[str, Any]:
    return {
        key: group.keys[key],
        "calls": group.calls,
        "total_bytes": group.bytes,
        "gpu_ns": round(_time_ns(group)),
        "busbw_gbs": group.busbw_gbs,
        "busbw_wire_gbs": group.busbw_wire_gbs,
        "wait_share": group.wait_share,
        **bounds_json(group),
    }
