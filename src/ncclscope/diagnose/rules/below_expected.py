"""Bandwidth against a baseline that was measured before on the same machines."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from ncclscope.diagnose.finding import CRITICAL, WARNING, Evidence, Finding
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.errors import UsageError
from ncclscope.humanize import binary_size, percent
from ncclscope.nccl.bandwidth import bus_factor

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
    hint = "Give the JSON of `ncclscope bench`, or of nccl-tests -J"
    try:
        data = json.loads(Path(path).read_text())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint) from None
    except ValueError:
        raise UsageError(f"cannot read {path}: it is not JSON", hint) from None
    found = [expected for row in _rows(data) if (expected := _expected(row, data))]
    if not found:
        raise UsageError(f"cannot use {path}: it holds no bus bandwidths", hint)
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


@dataclass(frozen=True, slots=True)
class Reached:
    """What a communicator reaches with one function and size."""

    function: str
    size_bytes: int
    communicator: int
    ranks: int
    busbw_gbs: float  # over the wire, of the median operation
    wire_ns: float  # of all operations, on the average rank


def reached(frame: RuleContext) -> list[Reached]:
    """Functions and sizes of which there are some operations with a time on the wire."""
    ops, ranks = frame.ops, frame.model.tables["communicators"]["ranks"]
    rows = np.flatnonzero(frame.collective & (ops["wire_ns"] > 0) & (ops["size_bytes"] > 0))
    columns = ("function", "size_bytes", "communicator")
    stacked = np.stack([np.asarray(ops[name], np.int64)[rows] for name in columns])
    kinds, kind = np.unique(stacked, axis=1, return_inverse=True)
    order = np.argsort(kind.reshape(-1), kind="stable")
    wire = np.asarray(ops["wire_ns"], np.float64)[rows][order]
    cuts = np.searchsorted(kind.reshape(-1)[order], np.arange(kinds.shape[1] + 1))
    found = []
    for one in range(kinds.shape[1]):
        code, size_bytes, communicator = kinds[:, one].tolist()
        function, mine = frame.word("function", code), wire[cuts[one] : cuts[one + 1]]
        factor = bus_factor(function, int(ranks[communicator]))
        if factor is None or len(mine) < _LEAST:
            continue
        busbw_gbs = size_bytes * factor / float(np.median(mine))
        members = max(len(frame.ranks_of(communicator)), 1)
        found.append(
            Reached(
                function, size_bytes, communicator, int(ranks[communicator]), busbw_gbs,
                float(mine.sum()) / members,
            )
        )  # fmt: skip
    return found


def find(frame: RuleContext, baseline: list[Expected]) -> list[Finding]:
    """Functions and sizes that reach less than they did in the baseline, on the wire."""
    expected = {(one.function, one.size_bytes): one for one in baseline}
    findings = []
    for one in reached(frame):
        known = expected.get((one.function.casefold(), one.size_bytes))
        share = one.busbw_gbs / known.busbw_gbs if known else 1.0
        if known is None or share >= _SHORT:
            continue
        name = frame.model.communicator_names[one.communicator]
        findings.append(
            Finding(
                "below_expected",
                CRITICAL if share < _GRAVE else WARNING,
                f"{one.function} of {binary_size(one.size_bytes)} on {name} reaches "
                f"{one.busbw_gbs:.3g} GB/s of bus bandwidth on the wire, {percent(share)} of the "
                f"{known.busbw_gbs:.3g} GB/s in the baseline",
                "compare topology, NCCL release and settings with those of the baseline",
                "baseline",
                communicators=(name,),
                confidence=0.9,
                lost_share=min(one.wire_ns * (1 - share) / frame.span_ns, 1.0),
                evidence=(
                    Evidence(
                        "bus bandwidth over the wire",
                        {"busbw_gbs": round(one.busbw_gbs, 4), "baseline_gbs": known.busbw_gbs},
                        f"ncclscope report {frame.path} --comm {quote(name)}",
                    ),
                ),
            )
        )
    return sorted(findings, key=lambda finding: -finding.lost_share)[:_MOST]
