"""Operations of which a sample was timed: as times by key, and as a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ncclscope.analysis.sampled_operations import sampled_operations
from ncclscope.analysis.sampling import Estimate
from ncclscope.analysis.selection import DEFAULT_BY, Selection
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE, NOT_SAMPLED, SOURCES, TABLES, empty
from tests.support.model_builders import WORDS, model, world

SIZE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SampledKey:
    """All operations of one key in order, and the places of those that were timed."""

    time_ns: Any
    timed: Any


def sampled_model(keys: Sequence[SampledKey], source: str = "gpu-event", ranks: int = 1) -> Model:
    """A model of these keys, alike on all ranks; key n is an AllReduce of n + 1 MiB."""
    communicators = [{"id": 7, "name_inferred": 0, "ranks": max(ranks, 2), "nodes": 1}]
    made = model([], [], communicators, ["world"], world(ranks, ranks))
    rows = sum(len(key.time_ns) for key in keys)
    columns = empty(TABLES["operations"], rows * ranks)
    reasons = [*WORDS["reason"], NOT_SAMPLED]
    first = 0
    for rank in range(ranks):
        for number, key in enumerate(keys):
            own = slice(first, first + len(key.time_ns))
            first = own.stop
            duration = np.full(len(key.time_ns), NONE, np.int64)
            duration[key.timed] = np.asarray(key.time_ns)[key.timed]
            timed = duration != NONE
            start = 10**6 + np.cumsum(np.asarray(key.time_ns, np.int64))
            values: dict[str, Any] = {
                "process": rank, "communicator": 0, "rank": rank, "global_rank": rank, "node": 0,
                "form": 0, "function": 0, "datatype": 0, "algorithm": 0, "protocol": 2,
                "size_bytes": SIZE_BYTES * (number + 1), "replay": 0, "symmetric": 0,
                "inferred": 0, "state": 0, "call_ns": start - 10**4, "duration_ns": duration,
                "start_ns": np.where(timed, start, NONE),
                "end_ns": np.where(timed, start + duration, NONE),
                "source": np.where(timed, SOURCES.index(source), SOURCES.index("none")),
                "reason": np.where(timed, 0, len(reasons) - 1),
            }  # fmt: skip
            for name, value in values.items():
                columns[name][own] = value
    made.tables["operations"] = columns
    made.words["reason"] = reasons
    return made


def totals_of_keys(keys: Sequence[SampledKey]) -> list[Estimate]:
    """The estimated total of every key."""
    sampled = sampled_operations(sampled_model(keys), Selection(), DEFAULT_BY)
    assert sampled
    strata = sampled.rows_by_group(["size_bytes"], folded=False)
    return [
        sampled.strata.total_ns(strata[(SIZE_BYTES * (number + 1),)]) for number in range(len(keys))
    ]
