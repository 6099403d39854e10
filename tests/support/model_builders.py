"""Models made by hand or by chance, for analyses and reports."""

from pathlib import Path
from typing import Any

import numpy as np

from ncclscope.model.completeness import Completeness
from ncclscope.model.model import Model, ProcessRow
from ncclscope.model.schema import (
    CONTEXTS,
    FORMS,
    LEVELS,
    NONE,
    ORIGINS,
    PHASE_NAMES,
    SOURCES,
    STAMPS,
    STATES,
    TABLES,
    empty,
)

WORDS = {
    "function": [
        "AllReduce",
        "AllGather",
        "ReduceScatter",
        "Broadcast",
        "Send",
        "Recv",
        "AlltoAll",
    ],
    "datatype": ["float32", "bfloat16", "int8"],
    "algorithm": ["RING", "TREE", "NVLS"],
    "protocol": ["LL", "LL128", "SIMPLE"],
    "variant": [],
    "form": list(FORMS),
    "source": list(SOURCES),
    "state": list(STATES),
    "stamp": list(STAMPS),
    "level": list(LEVELS),
    "phase": list(PHASE_NAMES),
    "context": list(CONTEXTS),
    "origin": list(ORIGINS),
    "dimension": ["dp", "tp", "pp"],
    "reason": ["", "stamp never delivered", "Broadcast takes NCCL's AllGatherV path"],
}
# 2026-11-15 06:00:00 UTC is ns 0 of the model's clock.
REALTIME_OFFSET_NS = 1_794_722_400 * 10**9


def completeness(**numbers: Any) -> Completeness:
    """Complete, unless told otherwise."""
    defaults = {
        "processes_found": 4, "processes_expected": 4, "calls": 0, "operations": 0, "gpu_timed": 0,
        "repaired": 0, "in_flight": 0, "untimed": {}, "dropped": {}, "stamps": {},
        "missing_operations": 0, "mismatched_instances": 0,
    }  # fmt: skip
    return Completeness(**defaults | numbers)


def process_row(rank: int, node: int, mode: str = "trace") -> ProcessRow:
    """A process of rank `rank`."""
    return ProcessRow(
        folder=f"host{node}.{100 + rank}.1", host=f"host{node}", node=node, pid=100 + rank,
        global_rank=rank, mode=mode, nccl_version="2.28.9", interface=5, gpu="", attempt=0,
        started_ns=REALTIME_OFFSET_NS, ended=True,
    )  # fmt: skip


def table(name: str, rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Columns of one table from rows; words are given as names."""
    columns = empty(TABLES[name], len(rows))
    sorts = {column.name for column in TABLES[name] if column.words}
    for place, row in enumerate(rows):
        for column, value in row.items():
            columns[column][place] = WORDS[column].index(value) if column in sorts else value
    return columns


def operation(**columns: Any) -> dict[str, Any]:
    """A row of `operations`: done, no replay, nothing inferred."""
    row = {"state": "done", "replay": 0, "symmetric": 0, "inferred": 0, "form": "collective"}
    row |= columns
    if "rank" in row:
        row.setdefault("global_rank", row["rank"])
        row.setdefault("process", row["global_rank"])
        row.setdefault("node", 0)
    if "start_ns" in row and "duration_ns" in row:
        row.setdefault("end_ns", row["start_ns"] + row["duration_ns"])
        row.setdefault("call_ns", row["start_ns"] - 10_000)
    return row


def model(
    operations: list[dict[str, Any]],
    instances: list[dict[str, Any]],
    communicators: list[dict[str, Any]],
    names: list[str],
    members: list[dict[str, Any]],
    nodes: int = 1,
    counts: dict[str, Any] | None = None,
) -> Model:
    """A model of those rows."""
    ranks = max((row["global_rank"] for row in members), default=-1) + 1
    of_node = {row["global_rank"]: row["node"] for row in members}
    numbers = {"processes_found": ranks, "processes_expected": ranks, "calls": len(operations)}
    return Model(
        path=Path("/captures/job"),
        tables={
            "operations": table("operations", operations),
            "instances": table("instances", instances),
            "communicators": table("communicators", communicators),
            "members": table("members", members),
            "windows": table("windows", []),
            "counters": table("counters", []),
            "counter_histograms": table("counter_histograms", []),
            "steps": table("steps", []),
            "phases": table("phases", []),
            "modules": table("modules", []),
        },
        words={name: list(words) for name, words in WORDS.items()},
        communicator_names=names,
        processes=[process_row(rank, of_node.get(rank, 0)) for rank in range(ranks)],
        nodes=[f"host{node}" for node in range(nodes)],
        completeness=completeness(**numbers | {"operations": len(operations)} | (counts or {})),
        realtime_offset_ns=REALTIME_OFFSET_NS,
    )


def world(ranks: int, per_node: int) -> list[dict[str, Any]]:
    """Members of a communicator of all ranks."""
    return [
        {"communicator": 0, "rank": r, "process": r, "global_rank": r, "node": r // per_node}
        for r in range(ranks)
    ]


def random_model(operations: int, seed: int, ranks: int = 8, sizes: int = 9) -> Model:
    """Operations by chance, every column that analyses look at with gaps."""
    draw = np.random.default_rng(seed)
    columns = empty(TABLES["operations"], operations)
    some = {
        "communicator": 3, "global_rank": ranks, "function": 7, "datatype": 3, "algorithm": 3,
        "protocol": 3, "form": 4, "tag": 3, "thread": 5,
    }  # fmt: skip
    for name, most in some.items():
        columns[name][:] = draw.integers(0, most, operations)
    columns["process"][:] = columns["global_rank"]
    columns["node"][:] = columns["global_rank"] // 4
    columns["rank"][:] = columns["global_rank"]
    columns["peer"][:] = draw.integers(0, ranks, operations)
    columns["size_bytes"][:] = 1 << draw.integers(6, 6 + sizes, operations)
    columns["replay"][:] = draw.integers(0, 10, operations) == 0
    columns["inferred"][:] = draw.integers(0, 50, operations) == 0
    columns["state"][:] = draw.choice([0, 0, 0, 0, 0, 0, 0, 1, 3, 4], operations)
    columns["source"][:] = draw.choice(len(SOURCES), operations, p=[0.55, 0.1] + [0.35 / 9] * 9)
    columns["reason"][:] = np.where(columns["source"] == 0, NONE, draw.integers(0, 3, operations))
    start = np.sort(draw.integers(10**6, 10**10, operations))
    duration = np.exp(draw.normal(11, 1, operations)).astype(np.int64)
    timed = (columns["source"] != SOURCES.index("none")) & (columns["state"] == 0)
    for name, value in {
        "start_ns": start, "end_ns": start + duration, "duration_ns": duration,
        "wait_ns": duration // 3, "wire_ns": duration - duration // 3, "relative_wait_ns": duration // 4,
    }.items():  # fmt: skip
        columns[name][:] = np.where(timed, value, NONE)
    columns["wait_ns"][::5] = columns["wire_ns"][::5] = NONE
    columns["call_ns"][:] = np.where(columns["replay"] == 1, NONE, start - 5000)
    columns["enqueue_ns"][:] = start - 2000
    columns["part_of"][:] = np.where(draw.integers(0, 20, operations) == 0, 0, NONE)
    instances = empty(TABLES["instances"], operations // ranks)
    count = len(instances["communicator"])
    instances["communicator"][:] = draw.integers(0, 3, count)
    instances["last_communicator_rank"][:] = draw.integers(-1, ranks, count)
    instances["skew_ns"][:] = np.where(
        draw.integers(0, 5, count) == 0, NONE, draw.integers(0, 10**6, count)
    )
    instances["error_ns"][:] = draw.integers(0, 5000, count)
    members = [dict(row, communicator=c) for c in range(3) for row in world(ranks, 4)]
    comms = [
        {"id": 77 + c, "name_inferred": 0, "ranks": ranks, "nodes": 1 + (c > 0)} for c in range(3)
    ]
    made = model([], [], comms, ["world", "tp", "dp"], members, nodes=-(-ranks // 4))
    made.tables["operations"] = columns
    made.tables["instances"] = instances
    return made
