"""Bandwidths that a benchmark reached, to hold a run against.

Two forms are read: what `ncclscope bench --save` writes (docs/verbs/bench.md), strictly, and the
JSON of nccl-tests (`-J`), of which releases differ, as far as it goes. Everything is checked: the
file may come from anywhere.
"""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncclscope.errors import UsageError
from ncclscope.json_answers import version_of
from ncclscope.regular_files import read_bytes

FORM, FORM_VERSION = "ncclscope-bench", 1
_HINT = "Give the JSON of `ncclscope bench`, or of nccl-tests -J"
_LARGEST = 1 << 62
_LARGEST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Expected:
    """The bus bandwidth of one function and size."""

    function: str  # in lower case, letters only: allreduce
    size_bytes: int  # as nccl-tests count them
    busbw_gbs: float


@dataclass(frozen=True, slots=True)
class Baseline:
    """A benchmark's results; of one function and size the last one counts."""

    path: Path
    simulated: bool
    expected: tuple[Expected, ...]

    def by_case(self) -> dict[tuple[str, int], Expected]:
        """By function and size."""
        return {(case.function, case.size_bytes): case for case in self.expected}


def function_key(name: str) -> str:
    """A function's name as all programs would spell it: AllReduce and all_reduce → allreduce."""
    return re.sub(r"[^a-z]", "", name.casefold())


def read_baseline(path: Path) -> Baseline:
    """The results in a file; a UsageError where it has none."""
    try:
        document = json.loads(read_bytes(path, _LARGEST_BYTES, follow=True))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", _HINT) from None
    except (ValueError, RecursionError):
        raise UsageError(f"cannot read {path}: it is not JSON", _HINT) from None
    if isinstance(document, dict) and document.get("form") == FORM:
        baseline = _of_bench(path, document)
    else:
        baseline = Baseline(path, False, _of_nccl_tests(document))
    if not baseline.expected:
        raise UsageError(f"cannot use {path}: it holds no bus bandwidths", _HINT)
    return baseline


# ---- ncclscope bench ----
def _of_bench(path: Path, document: dict[str, Any]) -> Baseline:
    version = version_of(document)
    if version != FORM_VERSION:
        message = f"cannot read {path}: form {version} is not the one this release knows"
        raise UsageError(message, _HINT)
    try:
        expected = tuple(
            Expected(function_key(row["operation"]), _size(row["size_bytes"]), busbw)
            for row in document["results"]
            if (busbw := _bandwidth(row["busbw_gbs"])) is not None
        )
        return Baseline(path, bool(document["simulated"]), expected)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"cannot read {path}: {error!r}", _HINT) from None


def _size(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LARGEST:
        raise ValueError(f"size_bytes is {value!r}")
    return value


def _bandwidth(value: object) -> float | None:
    """None where the function has no bus bandwidth, or where no time passed."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"busbw_gbs is {value!r}")
    return float(value) if value > 0 else None


# ---- nccl-tests ----
def _of_nccl_tests(document: object) -> tuple[Expected, ...]:
    """Rows that have a size and a bus bandwidth; the program's name is the function's."""
    if not isinstance(document, dict) or not isinstance(document.get("results"), list):
        return ()
    program = _program(document)
    expected = []
    for row in document["results"]:
        if not isinstance(row, dict):
            continue
        name, size = row.get("experiment_name"), row.get("size")
        function = function_key(name if isinstance(name, str) and name else program)
        busbw = _bus_bw(row.get("out_of_place")) or _bus_bw(row.get("in_place"))
        if function and busbw and type(size) is int and 0 <= size < _LARGEST:
            expected.append(Expected(function, size, busbw))
    return tuple(expected)


def _program(document: dict[str, Any]) -> str:
    """./build/all_reduce_perf → all_reduce"""
    arguments = document.get("args")
    first = arguments[0] if isinstance(arguments, list) and arguments else ""
    return Path(first).name.removesuffix("_perf") if isinstance(first, str) else ""


def _bus_bw(place: object) -> float | None:
    value: object = place.get("bus_bw") or place.get("busbw") if isinstance(place, dict) else None
    try:
        return _bandwidth(value)
    except ValueError:
        return None
