"""What `ncclscope bench --save` measured, read back: how fast an operation can be here.

The form is described in docs/verbs/bench.md. Only what a comparison needs is read; everything is
checked, because the file may come from anywhere.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncclscope.errors import NcclscopeError

FORM, FORM_VERSION = "ncclscope-bench", 1
_HINT = "Make one with `ncclscope bench --save FILE`"


@dataclass(frozen=True, slots=True)
class Expected:
    """One measured case: the key, and what it took."""

    function: str  # as operations call it: AllReduce, SendRecv …
    size_bytes: int  # as nccl-tests count them
    datatype: str
    ranks: int
    in_place: bool
    median_ns: int
    p99_ns: int
    time_ns: int
    busbw_gbs: float | None


@dataclass(frozen=True, slots=True)
class Baseline:
    """A benchmark that was saved."""

    path: Path
    simulated: bool
    nccl: str
    ranks: int
    hosts: int
    expected: tuple[Expected, ...]


def _whole(said: dict[str, Any], name: str) -> int:
    value = said[name]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise ValueError(f"{name} is {value!r}")
    return value


def _expected(said: dict[str, Any]) -> Expected:
    busbw = said["busbw_gbs"]
    return Expected(
        str(said["operation"]),
        _whole(said, "size_bytes"),
        str(said["datatype"]),
        _whole(said, "ranks"),
        bool(said["in_place"]),
        _whole(said, "median_ns"),
        _whole(said, "p99_ns"),
        _whole(said, "time_ns"),
        None if busbw is None else float(busbw),
    )


def read_baseline(path: Path) -> Baseline:
    """A saved benchmark; one sentence where it is none."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NcclscopeError(f"cannot read {path}: {error.strerror}", _HINT) from None
    except ValueError:
        raise NcclscopeError(f"cannot read {path}: it is not JSON", _HINT) from None
    if not isinstance(said, dict) or said.get("form") != FORM:
        raise NcclscopeError(f"cannot read {path}: it is no benchmark of ncclscope's", _HINT)
    if said.get("form_version") != FORM_VERSION:
        version = said.get("form_version")
        message = f"cannot read {path}: form {version} is not the one this release knows"
        raise NcclscopeError(message, _HINT)
    try:
        return Baseline(
            path,
            bool(said["simulated"]),
            str(said["nccl"]),
            _whole(said, "ranks"),
            _whole(said, "hosts"),
            tuple(_expected(one) for one in said["results"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NcclscopeError(f"cannot read {path}: {error!r}", _HINT) from None
