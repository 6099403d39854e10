"""Where a finding of `diagnose` is seen best: one bar on the page."""

from typing import Any

import numpy as np

from ncclscope.diagnose.diagnosis import diagnose
from ncclscope.diagnose.finding import Finding
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE, STATES
from ncclscope.snapshot.process import unfinished_snapshots
from ncclscope.web.bar_details import Lookup
from ncclscope.web.queries import where

_STUCK = [STATES.index(name) for name in ("in flight", "never launched")]


def findings(lookup: Lookup, model: Model) -> list[dict[str, Any]]:
    """All findings, the worst first, with the place of an operation that shows each."""
    out = []
    for finding in diagnose(model, unfinished_snapshots(model)).findings:
        shown: dict[str, Any] = {
            "title": finding.sentence,
            "severity": finding.severity,
            "advice": finding.advice,
            "start_ns": 0,
            "end_ns": lookup.scene.last_ns - lookup.scene.first_ns,
        }
        operation = _telling(model, finding)
        place = None if operation is None else where(lookup, model, operation)
        out.append(shown | (place or {}))
    return out


def _telling(model: Model, finding: Finding) -> int | None:
    """The row of an operation in which a finding shows."""
    operations, instances = model.tables["operations"], model.tables["instances"]
    mine = np.asarray(operations["part_of"]) == NONE
    if finding.communicators:
        names = enumerate(model.communicator_names)
        comms = [row for row, name in names if name in finding.communicators]
        mine &= np.isin(operations["communicator"], comms)
    of_ranks = mine & np.isin(operations["global_rank"], finding.ranks)
    instance = np.maximum(np.asarray(operations["instance"]), 0)
    known = np.asarray(operations["instance"]) != NONE
    if finding.family == "hang":
        return _largest(-np.asarray(operations["call_order"]), mine & _is_stuck(operations))
    if finding.family == "mismatch" and len(instances["mismatch"]):
        wrong = mine & known & (np.asarray(instances["mismatch"])[instance] == 1)
        return _largest(-np.asarray(operations["call_order"]), wrong)
    if finding.family in ("straggler", "imbalance") and len(instances["skew_ns"]):
        last = np.asarray(instances["last_rank"])[instance] == np.asarray(operations["rank"])
        skew = np.asarray(instances["skew_ns"])[instance]
        return _largest(skew, of_ranks & known & last)
    chosen = of_ranks if of_ranks.any() else mine
    return _largest(np.asarray(operations["duration_ns"]), chosen)


def _is_stuck(operations: Any) -> Any:
    return np.isin(operations["state"], _STUCK)


def _largest(values: Any, among: Any) -> int | None:
    """The row with the largest value of those that the mask marks."""
    rows = np.flatnonzero(among)
    return int(rows[int(values[rows].argmax())]) if len(rows) else None
