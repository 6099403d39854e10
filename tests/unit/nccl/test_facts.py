"""Facts of NCCL agree with each other, and an unknown datatype has no size."""

import doctest
from dataclasses import replace

import pytest

from ncclscope.nccl import bandwidth, datatypes, operation_bytes, releases
from ncclscope.nccl.functions import FUNCTIONS, NUMBERED_FUNCTIONS


@pytest.mark.parametrize("module", [bandwidth, operation_bytes])
def test_examples_in_docstrings_hold(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


def test_an_unknown_datatype_has_no_size() -> None:
    assert operation_bytes.operation_bytes("AllReduce", "float3", 8, 2, in_coll=False) is None
    assert operation_bytes.operation_bytes("AllGather", "float3", 8, 2, in_coll=True) == 16


def test_a_datatype_of_less_than_a_byte_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    half = replace(datatypes.DATATYPES["int8"], name="float4", bits=4)
    monkeypatch.setitem(datatypes.DATATYPES, "float4", half)
    assert operation_bytes.operation_bytes("AllReduce", "float4", 7, 2, in_coll=False) == 4
    assert operation_bytes.operation_bytes("AllGather", "float4", 7, 2, in_coll=False) == 7


def test_names_and_numbers_of_datatypes_are_all_different() -> None:
    rows = list(datatypes.DATATYPES.values())
    for field in ("name", "number", "nccl_tests", "torch"):
        assert len({getattr(row, field) for row in rows}) == len(rows)
    assert [row.number for row in rows] == list(range(len(rows)))


def test_numbered_functions_are_functions() -> None:
    assert set(NUMBERED_FUNCTIONS) <= set(FUNCTIONS)


@pytest.mark.parametrize(
    ("interface", "function"), [(3, "Send"), (5, "Send"), (6, "Send"), (7, "Broadcast")]
)
def test_what_loses_kernel_events(interface: int, function: str) -> None:
    assert releases.loses_kernel_events_after(interface) == function
