"""Waits of operations that were timed by CUDA events, against those of a job timed in full."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ncclscope.analysis.run import Run
from ncclscope.arrays.types import Ints
from ncclscope.model.build import open_model
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE, SOURCES
from tests.support.laboratory.random_jobs import random_kind

_EVENT_ERROR_NS = 13_000  # of a time by the laboratory's events, as `report` says
_COLUMNS = ("wait_ns", "relative_wait_ns", "wire_ns", "duration_ns", "source")


def _by_call(model: Model) -> dict[str, Ints]:
    """Columns of operations, in an order that two models of one job share."""
    table = model.tables["operations"]
    keys = [np.asarray(table[name], np.int64) for name in ("call_order", "size_bytes", "function")]
    members = [tuple(Run(model).ranks_of(row)) for row in range(len(model.communicator_names))]
    places = {ranks: place for place, ranks in enumerate(sorted(set(members)))}
    place = np.array([places[ranks] for ranks in members])[np.asarray(table["communicator"])]
    order = np.lexsort((*keys, place, np.asarray(table["global_rank"])))
    return {name: np.asarray(table[name], np.int64)[order] for name in _COLUMNS}


@pytest.mark.parametrize("seed", [30022, 30027])
def test_a_rank_that_comes_last_has_a_duration_too_short_for_events(
    seed: int, tmp_path: Path
) -> None:
    """Others wait for it all the same, and their durations are not taken for time on the wire."""
    kind = random_kind(seed, longer=8)
    kind.write(tmp_path / "full", seed)
    recording = replace(kind.recording, timed_every=16)
    replace(kind, recording=recording).write(tmp_path / "sample", seed)
    full = _by_call(open_model(tmp_path / "full"))
    sample = _by_call(open_model(tmp_path / "sample"))
    assert len(full["wait_ns"]) == len(sample["wait_ns"])
    rough = sample["source"] == SOURCES.index("gpu-event-rough")
    assert rough.sum() > 50
    known = (sample["wait_ns"] != NONE) & (full["wait_ns"] != NONE)
    assert known.sum() > 50
    off = sample["wait_ns"][known] - full["wait_ns"][known]
    assert np.quantile(np.abs(off), 0.95) < 4 * _EVENT_ERROR_NS
    relative = (sample["relative_wait_ns"] != NONE) & (full["relative_wait_ns"] != NONE)
    off = sample["relative_wait_ns"][relative] - full["relative_wait_ns"][relative]
    assert np.quantile(np.abs(off), 0.95) < 4 * _EVENT_ERROR_NS
    assert (sample["wire_ns"][rough] == NONE).all()
    wire = (sample["wire_ns"] != NONE) & (full["wire_ns"] != NONE)
    assert (sample["wire_ns"][wire] < full["wire_ns"][wire] + 4 * _EVENT_ERROR_NS).all()
