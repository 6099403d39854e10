"""The findings of `diagnose`, each with the bar that shows it best."""

from typing import Any

import numpy as np

from ncclscope.diagnose.diagnosis import diagnose
from ncclscope.diagnose.finding import Finding
from ncclscope.model.model import Model
from ncclscope.model.schema import IN_FLIGHT, NEVER_LAUNCHED, NONE
from ncclscope.snapshot.process import unfinished_snapshots
from ncclscope.web.lookup import Lookup
from ncclscope.web.queries import operation_json

_STUCK = (IN_FLIGHT, NEVER_LAUNCHED)


def findings(lookup: Lookup, model: Model) -> list[dict[str, Any]]:
    """All findings, the worst first, with the place of an operation that shows each."""
    listed = []
    for finding in diagnose(model, unfinished_snapshots(model)).findings:
        as_json: dict[str, Any] = {
            "title": finding.sentence,
            "severity": finding.severity,
            "advice": finding.advice,
            "start_ns": 0,
            "end_ns": lookup.scene.last_ns - lookup.scene.first_ns,
        }
        row = _operation_of(model, finding)
        place = None if row is None else operation_json(lookup, model, row)
        listed.append(as_json | (place or {}))
    return listed


def _operation_of(model: Model, finding: Finding) -> int | None:
    """The row of an operation that shows a finding."""
    operations, instances = model.tables["operations"], model.tables["instances"]
    concerned = np.asarray(operations["part_of"]) == NONE
    if finding.communicators:
        names = enumerate(model.communicator_names)
        comms = [row for row, name in names if name in finding.communicators]
        concerned &= np.isin(operations["communicator"], comms)
    of_ranks = concerned & np.isin(operations["global_rank"], finding.ranks)
    among = of_ranks if of_ranks.any() else concerned
    instance = np.maximum(np.asarray(operations["instance"]), 0)
    known = np.asarray(operations["instance"]) != NONE
    if finding.family == "hang":
        return _largest(-np.asarray(operations["call_order"]), concerned & _is_stuck(operations))
    if finding.family == "mismatch" and len(instances["mismatch"]):
        wrong = concerned & known & (np.asarray(instances["mismatch"])[instance] == 1)
        return _largest(-np.asarray(operations["call_order"]), wrong)
    if finding.family in ("straggler", "imbalance") and len(instances["skew_ns"]):
        last_rank = np.asarray(instances["last_communicator_rank"])[instance]
        last = last_rank == np.asarray(operations["rank"])
        skew = np.asarray(instances["skew_ns"])[instance]
        return _largest(skew, among & known & last)
    return _largest(np.asarray(operations["duration_ns"]), among)


def _is_stuck(operations: Any) -> Any:
    return np.isin(operations["state"], _STUCK)


def _largest(values: Any, among: Any) -> int | None:
    """The row with the largest value among those that the mask marks."""
    rows = np.flatnonzero(among)
    return int(rows[int(values[rows].argmax())]) if len(rows) else None
