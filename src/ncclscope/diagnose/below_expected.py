"""Bandwidth against a baseline that was measured before on the same machines."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ncclscope.analysis.bandwidth import bus_factor
from ncclscope.diagnose.finding import CRITICAL, WARNING, Evidence, Finding
from ncclscope.diagnose.frame import Frame
from ncclscope.errors import UsageError
from ncclscope.words import binary_size, percent

_SHORT = 0.8  # of the baseline
_GRAVE = 0.5
_LEAST = 5  # operations
_MOST = 5


@dataclass(frozen=True, slots=True)
class Expected:
    """Bus bandwidth of one function and size."""

    function: str
    size_bytes: int
    busbw_gbs: float


def read_baseline(path: str) -> list[Expected]:
    """What a benchmark reached: JSON of `ncclscope bench`, or of nccl-tests (-J)."""
    try:
        data = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        message = f"cannot read {path}: {error}"
        raise UsageError(
            message, "Give the JSON of `ncclscope bench`, or of nccl-tests -J"
        ) from None
    found = [expected for row in _rows(data) if (expected := _expected(row, data))]
    if not found:
        raise UsageError(
            f"cannot use {path}: it holds no bus bandwidths",
            "Give the JSON of `ncclscope bench`, or of nccl-tests -J",
        )
    return found


def _rows(data: Any) -> list[dict[str, Any]]:
    if isinstance(data, dict):
        for key in ("results", "rows", "measurements", "operations"):
            if isinstance(data.get(key), list):
                return [row for row in data[key] if isinstance(row, dict)]
    return [row for row in data if isinstance(row, dict)] if isinstance(data, list) else []


def _number(row: dict[str, Any], *names: str) -> float | None:
    for name in names:
        value = row.get(name)
        if isinstance(value, dict):
            value = value.get("busbw") or value.get("bus_bw")
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    return None


def _function(row: dict[str, Any], data: Any) -> str:
    """The function that a row measures; nccl-tests name it by their program only."""
    names = ("function", "operation", "collective", "experiment_name")
    given = [row.get(name) for name in names]
    if isinstance(data, dict):
        given += [data.get(name) for name in names]
        arguments = data.get("args")
        if isinstance(arguments, list) and arguments and isinstance(arguments[0], str):
            given.append(Path(arguments[0]).name.removesuffix("_perf"))
    name = next((text for text in given if isinstance(text, str) and text), "")
    return re.sub(r"[^a-z]", "", name.casefold())


def _expected(row: dict[str, Any], data: Any) -> Expected | None:
    size = _number(row, "bytes", "size_bytes", "size")
    busbw = _number(row, "busbw_gbs", "busbw", "bus_bw", "out_of_place", "in_place")
    function = _function(row, data)
    if not function or size is None or busbw is None or busbw <= 0:
        return None
    return Expected(function, int(size), busbw)


def find(frame: Frame, baseline: list[Expected]) -> list[Finding]:
    """Functions and sizes that reach less than they did in the baseline, on the wire."""
    ops, ranks = frame.ops, frame.model.tables["communicators"]["ranks"]
    expected = {(one.function, one.size_bytes): one for one in baseline}
    rows = np.flatnonzero(frame.collective & (ops["wire_ns"] > 0) & (ops["size_bytes"] > 0))
    pairs = np.stack(
        [np.asarray(ops[n], np.int64)[rows] for n in ("function", "size_bytes", "communicator")]
    )
    kinds, kind = np.unique(pairs, axis=1, return_inverse=True)
    wire = np.asarray(ops["wire_ns"], np.float64)[rows]
    findings = []
    for one in range(kinds.shape[1]):
        function = frame.word("function", int(kinds[0, one]))
        known = expected.get((function.casefold(), int(kinds[1, one])))
        factor = bus_factor(function, int(ranks[int(kinds[2, one])]))
        mine = wire[kind.reshape(-1) == one]
        if known is None or factor is None or len(mine) < _LEAST:
            continue
        reached = int(kinds[1, one]) * factor / float(np.median(mine))
        share = reached / known.busbw_gbs
        if share >= _SHORT:
            continue
        name = frame.model.communicator_names[int(kinds[2, one])]
        lost = float(mine.sum()) * (1 - share) / max(len(frame.ranks_of(int(kinds[2, one]))), 1)
        findings.append(
            Finding(
                "below_expected",
                CRITICAL if share < _GRAVE else WARNING,
                f"{function} of {binary_size(int(kinds[1, one]))} on {name} reaches "
                f"{reached:.3g} GB/s, "
                f"{percent(share)} of the baseline's {known.busbw_gbs:.3g}",
                "compare topology, NCCL release and settings with those of the baseline",
                communicators=(name,),
                confidence=0.9,
                lost_share=min(lost / frame.span_ns, 1.0),
                evidence=(
                    Evidence(
                        "bus bandwidth over the wire",
                        {"busbw_gbs": round(reached, 4), "baseline_gbs": known.busbw_gbs},
                        f"ncclscope report {frame.path} --comm {name}",
                    ),
                ),
            )
        )
    return sorted(findings, key=lambda finding: -finding.lost_share)[:_MOST]
