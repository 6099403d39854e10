"""Amounts of bytes as users write them: 64K, 1.5G, 2GiB. Standard library only."""

import re

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d+)(\.\d+)?([KMGT]?)(?:I?B)?", re.IGNORECASE)

# As strtod reads a number, and one of three units (native/src/config.c).
_RECORDER_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?(?:E\d+)?)([KMG]?)", re.IGNORECASE)


def size_in_bytes(text: str, whole: bool = False) -> int | None:
    """The bytes; None: it is no size. `whole`: only whole numbers of a unit are sizes.

    K, M, G and T are powers of 1024: size_in_bytes("64K") -> 65536
    """
    match = _SIZE.fullmatch(text)
    if match is None or (whole and match[2]):
        return None
    unit = _UNITS[match[3].upper()]
    return int(float(match[1] + match[2]) * unit) if match[2] else int(match[1]) * unit


def recorder_size_in_bytes(text: str) -> float | None:
    """The bytes as the recorder reads them from its variables; None: it does not understand that.

    recorder_size_in_bytes("1e3K") -> 1024000.0
    """
    match = _RECORDER_SIZE.fullmatch(text)
    return float(match[1]) * _UNITS[match[2].upper()] if match else None
