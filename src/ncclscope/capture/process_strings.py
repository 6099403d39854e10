"""NCCL's names behind the string numbers in a process's slots."""

from ncclscope.nccl.algorithms import ALGORITHMS, PROTOCOLS
from ncclscope.nccl.datatypes import DATATYPES_OF_V1, datatype_name
from ncclscope.nccl.functions import NUMBERED_FUNCTIONS


class ProcessStrings:
    """NCCL's names behind a process's string ids."""

    def __init__(self, strings: dict[int, str]) -> None:
        self._strings = strings

    def function(self, number: int, v1: bool = False) -> str:
        """A function's name; interface v1 has numbers."""
        if v1:
            return _numbered(NUMBERED_FUNCTIONS, number)
        return self._strings.get(number, "")

    def datatype(self, number: int, v1: bool = False) -> str:
        """Our name of a datatype."""
        if v1:
            return _numbered(DATATYPES_OF_V1, number)
        text = self._strings.get(number, "")
        return datatype_name(text)

    def algorithm(self, number: int, v1: bool = False) -> str:
        """An algorithm's name."""
        return _numbered(ALGORITHMS, number) if v1 else self._strings.get(number, "")

    def protocol(self, number: int, v1: bool = False) -> str:
        """A protocol's name."""
        return _numbered(PROTOCOLS, number) if v1 else self._strings.get(number, "")


def _numbered(names: tuple[str, ...], number: int) -> str:
    """A name by its number; "" where this release of ours does not know it."""
    return names[number] if number < len(names) else ""
