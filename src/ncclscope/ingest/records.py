"""What files of other tools say: one record at a time, with the column names of model/schema.py."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from ncclscope.errors import FormatError
from ncclscope.model.schema import NONE
from ncclscope.nccl.functions import FUNCTIONS
from ncclscope.nccl.torch_names import FUNCTIONS_OF_TORCH

_LARGEST = 1 << 62
_LONGEST_TEXT = 4096
MOST_COUNTED = 1 << 21  # operations that an import makes of counts: a million takes 5 s
FIRST_WALL_NS = 10**18  # 2001: what is less counts from somewhere else than 1970
# NCCL's functions by their names in lower case without underscores.
_FUNCTIONS = {name.casefold(): name for name in (*FUNCTIONS, "AlltoAllv")}
_FORMS = {"Send": "send", "Recv": "recv"}
_KERNEL = re.compile(r"nccl(?:Dev|Symk)?(?:Dev)?Kernel_([A-Za-z]+)")


@dataclass(frozen=True, slots=True)
class ImportedProcess:
    """A process, as far as a file names it. Equal ones are the same process."""

    host: str
    pid: int
    file: str = ""  # tells processes without a pid apart, and clocks of single processes
    global_rank: int = NONE
    nccl_version: str = ""
    gpu: str = ""
    own_clock: bool = False  # its times cannot be compared with those of other processes


@dataclass(frozen=True, slots=True)
class ImportedCommunicator:
    """A communicator; `key` names it in all files of one import."""

    key: str
    id: int = 0  # NCCL's hash
    name: str = ""
    ranks: int = 0  # 0: not known
    nodes: int = 0


@dataclass(frozen=True, slots=True)
class ImportedMember:
    """A rank of a communicator, with or without operations."""

    process: ImportedProcess
    communicator: ImportedCommunicator
    rank: int
    global_rank: int = NONE


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on one rank. Values by column of `operations`; missing ones are unknown. Times
    are ns since 1970, or of the process's own clock.
    """

    process: ImportedProcess
    communicator: ImportedCommunicator | None
    values: Mapping[str, int | str]
    stack: str = ""  # where it was called, as ingest/call_stacks.py writes it


Record = Operation | ImportedMember | ImportedProcess


@dataclass(slots=True)
class ImportReport:
    """What a reader must know about an import: records that could not be used, and notes."""

    lost: dict[str, int] = field(default_factory=dict)  # records by reason
    notes: list[str] = field(default_factory=list)

    def lose(self, reason: str, count: int = 1) -> None:
        """Counts records that cannot be used."""
        self.lost[reason] = self.lost.get(reason, 0) + count

    def note(self, text: str) -> None:
        """Keeps a sentence, once."""
        if text not in self.notes:
            self.notes.append(text)


@dataclass(frozen=True, slots=True)
class Format:
    """One format of files: how to recognise it, and how to read it."""

    name: str  # on the command line
    title: str  # for people
    limits: tuple[str, ...]  # what such files do not hold, as notes
    matches: Callable[[bytes, Path], bool]  # by a file's first bytes, decompressed, and its name
    read: Callable[[Path, ImportReport], Iterator[Record]]
    # Whether files hold every call from the first on, so that calls can be numbered as they come.
    numbered: bool = False
    # How far starts on GPUs of one host may be off; a guess on the safe side.
    start_error_ns: int = 0
    # Where a file holds counts, a few bytes can stand for any number of operations.
    most_operations: int = 1 << 40


def check_counted(count: int, most: int) -> None:
    """Raises FormatError where a file counts more operations than an import makes."""
    if count > most:
        raise FormatError(f"cannot import it: it counts more than {most:,} operations")


def number(value: object, largest: int = _LARGEST) -> int:
    """A number from 0 to `largest`; NONE for everything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return NONE
    if isinstance(value, float):
        if not 0 <= value <= largest:  # not for NaN either
            return NONE
        value = int(value)
    return value if 0 <= value <= largest else NONE


def nanoseconds(value: object, unit_ns: int) -> int:
    """A time or a duration in ns; NONE for everything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return NONE
    if not 0 <= value <= _LARGEST / unit_ns:
        return NONE
    return value * unit_ns if isinstance(value, int) else round(value * unit_ns)


def text(value: object) -> str:
    """A string, cut to a bounded length; "" for everything else."""
    return value[:_LONGEST_TEXT] if isinstance(value, str) else ""


def hash_of(value: object) -> int:
    """NCCL's hash of a communicator from hexadecimal digits or a number, signed; 0: none."""
    if isinstance(value, str):
        try:
            value = int(value[:20], 16)
        except ValueError:
            return 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 64:
        return 0
    return value - (1 << 64) if value >> 63 else value


@lru_cache(1000)
def function_name(name: str) -> str:
    """NCCL's name of a function in any spelling; unknown names stay as they are."""
    plain = name.casefold().removeprefix("nccl").replace("_", "").replace(":", "").strip()
    return _FUNCTIONS.get(plain, name)


def torch_function_name(name: str) -> str:
    """NCCL's function behind PyTorch's name: `nccl:_all_gather_base`, `nccl:send 0->1`."""
    plain = name.rpartition(":")[2].split(" ")[0]
    function = FUNCTIONS_OF_TORCH.get(plain.casefold().replace("_", ""))
    return function or function_name(plain)


def kernel_function(name: str) -> str | None:
    """The function of a kernel of NCCL's: `ncclDevKernel_AllReduce_Sum_f32`; None for others."""
    match = _KERNEL.search(name)
    return function_name(match[1]) if match else None


def is_function(name: str) -> bool:
    """Whether NCCL has a function of that name, in any spelling."""
    return function_name(name) in _FUNCTIONS.values()


def form_of(function: str) -> str:
    """collective, send or recv."""
    return _FORMS.get(function, "collective")
