"""The sections of a report about steps whose CUDA kernels a profiler saw."""

from typing import Any

from ncclscope.analysis.kernel_exposure import KernelExposure, PartExposure, StepExposure
from ncclscope.analysis.kernel_join import StampCheck
from ncclscope.humanize import duration, percent, plural
from ncclscope.model.model import Model
from ncclscope.report.tables import Bar, Column, Table

_PARTS = {
    "compute_ns": "the GPU computes",
    "overlapped_ns": "of it, NCCL runs as well: overlapped",
    "exposed_ns": "NCCL alone: exposed",
    "idle_ns": "the GPU is idle",
}


def exposure_tables(exposure: KernelExposure | None, model: Model, most: int) -> list[Table]:
    """All of these sections; none where nobody took kernels."""
    if exposure is None:
        return []
    tables = [_steps(exposure)]
    if exposure.steps:
        tables.append(_each_step(exposure, model, most))
    for sort, parts in (("module", exposure.modules), ("communicator", exposure.communicators)):
        if len(parts) > 1 or any(part.name for part in parts):
            tables.append(_parts(sort, parts, exposure, most))
    return tables


def _steps(exposure: KernelExposure) -> Table:
    length = exposure.mean_ns("length_ns")
    columns = (Column("", right=False), Column("a step"), Column("share"), Column("", right=False))
    rows = []
    for name, words in _PARTS.items():
        value = exposure.mean_ns(name)
        share = value / length if length else 0.0
        rows.append((words, duration(value), percent(share), Bar(share)))
    notes = (
        f"exact: all kernels of {plural(len(exposure.steps), 'step')} in "
        f"{plural(exposure.traces, 'trace')} of a CUDA profiler; a step takes {duration(length)} "
        "on the GPU",
        *_check_notes(exposure.check),
        *exposure.notes,
    )
    return Table("exposed communication, measured", columns, tuple(rows), notes)


def _check_notes(check: StampCheck) -> tuple[str, ...]:
    if not check.kernels:
        return ("no kernel of NCCL's is in the traces",)
    joined = f"{check.joined:,} of {check.kernels:,} NCCL kernels are operations of this capture"
    if not check.compared:
        return (joined,)
    way = "shorter" if check.longer_ns >= 0 else "longer"
    return (
        joined,
        f"the recorder's durations of {check.compared:,} of them are "
        f"{duration(abs(check.longer_ns))} {way} than the profiler's at the median, 95 % within "
        f"±{duration(check.spread_ns)} of that",
    )


def _each_step(exposure: KernelExposure, model: Model, most: int) -> Table:
    columns = (
        Column("step"), Column("rank"), Column("length"), Column("compute"), Column("NCCL"),
        Column("overlapped", drop=1), Column("exposed"), Column("idle"),
    )  # fmt: skip
    steps = sorted(exposure.steps, key=lambda step: (step.step, _rank(model, step)))
    rows = tuple(
        (
            f"{step.step:,}", str(_rank(model, step)),
            *(duration(value) for value in (
                step.length_ns, step.compute_ns, step.nccl_ns, step.overlapped_ns,
                step.exposed_ns, step.idle_ns)),
        )
        for step in steps[:most]
    )  # fmt: skip
    more = len(steps) - most
    return Table(
        "measured steps", columns, rows, (f"{plural(more, 'more row')} not shown",) * (more > 0)
    )


def _rank(model: Model, step: StepExposure) -> int:
    return model.processes[step.process].global_rank


def _parts(
    sort: str, parts: tuple[PartExposure, ...], exposure: KernelExposure, most: int
) -> Table:
    largest = max((part.exposed_ns for part in parts), default=0)
    count = max(len(exposure.steps), 1)
    columns = (
        Column(sort, right=False), Column("kernels"), Column("NCCL a step"),
        Column("exposed a step"), Column("", right=False, drop=1), Column("of it exposed"),
    )  # fmt: skip
    rows = tuple(
        (
            part.name, f"{part.kernels:,}", duration(part.nccl_ns / count),
            duration(part.exposed_ns / count), Bar(part.exposed_ns / largest if largest else 0.0),
            percent(part.exposed_ns / part.nccl_ns if part.nccl_ns else 0.0),
        )
        for part in parts[:most]
    )  # fmt: skip
    more = len(parts) - most
    notes = (f"{plural(more, 'more row')} not shown",) if more > 0 else ()
    return Table(f"exposed communication by {sort}", columns, rows, notes)


def exposure_json(exposure: KernelExposure | None, model: Model) -> dict[str, Any]:
    """The same for JSON; nothing where nobody took kernels."""
    if exposure is None:
        return {}
    check = exposure.check
    return {
        "kernel_exposure": {
            "traces": exposure.traces,
            "notes": list(exposure.notes),
            "steps": [
                {
                    "step": step.step, "rank": _rank(model, step),
                    "length_ns": round(step.length_ns), "compute_ns": round(step.compute_ns),
                    "nccl_ns": round(step.nccl_ns), "overlapped_ns": round(step.overlapped_ns),
                    "exposed_ns": round(step.exposed_ns), "idle_ns": round(step.idle_ns),
                }
                for step in exposure.steps
            ],
            "modules": [_part_json("module", part) for part in exposure.modules],
            "communicators": [
                _part_json("communicator", part) for part in exposure.communicators
            ],
            "check": {
                "nccl_kernels": check.kernels, "joined": check.joined, "compared": check.compared,
                "profiler_longer_ns": round(check.longer_ns),
                "duration_spread_ns": round(check.spread_ns),
                "profiler_later_ns": round(check.later_ns),
                "start_spread_ns": round(check.start_spread_ns),
            },
        }
    }  # fmt: skip


def _part_json(sort: str, part: PartExposure) -> dict[str, Any]:
    return {
        sort: part.name, "kernels": part.kernels, "nccl_ns": round(part.nccl_ns),
        "exposed_ns": round(part.exposed_ns),
    }  # fmt: skip
