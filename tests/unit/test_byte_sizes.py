"""Amounts of bytes as users write them."""

import pytest

from ncclscope.byte_sizes import recorder_size_in_bytes, size_in_bytes


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("8", 8),
        ("1.5K", 1536),
        ("2gb", 2 << 30),
        ("1TiB", 1 << 40),
        ("9007199254740993", 2**53 + 1),
    ],
)
def test_units_are_powers_of_1024(text: str, size_bytes: int) -> None:
    assert size_in_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "K", "-1", "1X", "1 M", "0x10", "1e3", ".5G"])
def test_what_is_no_size(text: str) -> None:
    assert size_in_bytes(text) is None


def test_a_fraction_is_no_whole_size() -> None:
    assert size_in_bytes("1.5M", whole=True) is None
    assert size_in_bytes("1M", whole=True) == 1 << 20


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("64M", 64 << 20), ("1e3k", 1024e3), ("1.", 1), ("1T", None), ("2GiB", None)],
)
def test_the_recorder_understands_fewer_forms(text: str, size_bytes: float | None) -> None:
    assert recorder_size_in_bytes(text) == size_bytes
