"""Columns of a large process are in memory once, and no longer than they are needed."""

import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ncclscope.model import decode_capture
from ncclscope.model.process.decoded_process import Placement, decode_process, write_operations
from ncclscope.model.store.decoded_files import read_decoded
from tests.support.writer import SyntheticSpec, synthetic


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    synthetic(tmp_path / "capture", SyntheticSpec(processes=1, operations=30))
    return tmp_path / "capture"


def folder_in(capture: Path) -> Path:
    return next(capture.glob("*/meta")).parent


def test_operations_that_are_written_are_dropped_before_the_next_table_is_made(
    capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, left = list[Any](), list[bool]()
    decode, details = decode_capture.decode_process, decode_capture.own_details

    def noting(folder: Path) -> Any:
        decoded = decode(folder)
        made.append(weakref.ref(decoded[1]["event"]))  # type: ignore[index]
        return decoded

    def asking(*arguments: Any) -> Any:
        left.append(made[0]() is not None)
        return details(*arguments)

    monkeypatch.setattr(decode_capture, "decode_process", noting)
    monkeypatch.setattr(decode_capture, "own_details", asking)
    assert decode_capture.decode_capture(capture, remove_raw=True).decoded == 1
    assert left
    assert not any(left)


def test_columns_are_read_some_at_a_time(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decode_capture.decode_capture(capture, remove_raw=True)
    _, expected = read_decoded(folder_in(capture))
    monkeypatch.setattr("ncclscope.model.store.decoded_files._VALUES_AT_ONCE", 70)
    _, columns = read_decoded(folder_in(capture))
    assert list(columns) == list(expected)
    assert all(np.array_equal(columns[name], expected[name]) for name in expected)


def test_writing_leaves_columns_as_they_are(capture: Path, tmp_path: Path) -> None:
    """So that a task which is repeated needs no copy of them."""
    decoded = decode_process(folder_in(capture))
    assert not isinstance(decoded, str)
    before = {name: values.copy() for name, values in decoded[1].items()}
    places = np.arange(9, dtype=np.int64)
    placement = Placement(
        first_row=100, process=3, node=2, communicators=places + 5, global_ranks=places + 7,
        codes={"function": np.arange(99, dtype=np.int8)[::-1].copy()},
        modules=np.empty(0, np.int32),
    )  # fmt: skip
    (tmp_path / "model").mkdir()
    write_operations(dict(decoded[1]), placement, tmp_path / "model")
    assert all(np.array_equal(decoded[1][name], before[name]) for name in before)
