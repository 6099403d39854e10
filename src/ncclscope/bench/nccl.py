"""The part of NCCL's API that a benchmark needs, by ctypes.

A call is prepared once, with arguments that are ctypes objects already: what is repeated in a timed
loop is the C function and a comparison.
"""

import ctypes
from collections.abc import Callable
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_size_t, c_void_p
from typing import Any

from ncclscope.bench.datatypes import DATATYPES, REDUCTIONS, REDUCTIONS_SINCE
from ncclscope.bench.operations import NATIVE, Operation, Shape, pair_of
from ncclscope.bench.plan import Case
from ncclscope.bench.shared_library import function, load
from ncclscope.errors import NcclscopeError
from ncclscope.nccl.releases import release_of_code

UNIQUE_ID_BYTES = 128
_RESULTS = (
    "success", "unhandled CUDA error", "unhandled system error", "internal error",
    "invalid argument", "invalid usage", "remote process exited or there was a network error",
    "operation in progress",
)  # fmt: skip
Call = Callable[[], None]


class UniqueId(ctypes.Structure):
    """ncclUniqueId, which is passed by value."""

    _fields_ = [("bytes", c_char * UNIQUE_ID_BYTES)]


class Nccl:
    """One libnccl, and this process's communicator."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._library = load(path, "NCCL", "--nccl")
        self._last_error = getattr(self._library, "ncclGetLastError", None)
        if self._last_error is not None:
            self._last_error.restype = c_char_p
        self._function("ncclCommInitRank").argtypes = [POINTER(c_void_p), c_int, UniqueId, c_int]
        self.communicator = c_void_p()
        self.rank, self.ranks = 0, 1

    def _function(self, name: str) -> Any:
        return function(self._library, self.path, name)

    def check(self, code: int, what: str) -> None:
        """Raises what NCCL says."""
        if not code:
            return
        text = _RESULTS[code] if code < len(_RESULTS) else "unknown error"
        last = self._last_error(None) if self._last_error is not None else None
        more = f": {last.decode(errors='replace').strip()}" if last else ""
        message = f"NCCL failed: {what}: {text} ({code}){more}"
        raise NcclscopeError(message, "NCCL_DEBUG=WARN makes NCCL say more")

    def call(self, name: str, *arguments: Any) -> None:
        """A function of NCCL's, its result checked."""
        self.check(self._function(name)(*arguments), name)

    def version(self) -> int:
        """As NCCL encodes it."""
        code = c_int()
        self.call("ncclGetVersion", byref(code))
        return code.value

    def simulation(self) -> str:
        """What a simulated NCCL says of itself; nothing from a real one."""
        say = getattr(self._library, "ncclscopeSimulation", None)
        if say is None:
            return ""
        say.restype = c_char_p
        return (say() or b"simulated").decode(errors="replace")

    def has_native(self, name: str) -> bool:
        """Whether this release offers a function that came with 2.28."""
        return hasattr(self._library, name) and release_of_code(self.version()) >= (2, 28)

    def check_offers(
        self, operations: list[Operation], datatypes: list[str], ops: list[str]
    ) -> None:
        """Refuses before anything is measured what this release cannot do."""
        for operation in operations:
            for name in operation.needs:
                self._function(name)
        release = release_of_code(self.version())
        for what, since in [
            *((f"datatype {name}", DATATYPES[name].since) for name in datatypes),
            *((f"operator {name}", REDUCTIONS_SINCE.get(name, (2, 0))) for name in ops),
        ]:
            if release[:2] < since:
                shown = ".".join(map(str, release))
                message = f"cannot use {self.path}: NCCL {shown} has no {what}"
                needed = ".".join(map(str, since))
                raise NcclscopeError(message, f"Use NCCL {needed} or newer")

    def new_id(self) -> bytes:
        """An id for a communicator, made by one rank and handed to all."""
        unique = UniqueId()
        self.call("ncclGetUniqueId", byref(unique))
        return bytes(unique)

    def join(self, unique: bytes, rank: int, ranks: int) -> None:
        """Joins the communicator of an id."""
        self.rank, self.ranks = rank, ranks
        made = UniqueId.from_buffer_copy(unique)
        self.call("ncclCommInitRank", byref(self.communicator), c_int(ranks), made, c_int(rank))

    def leave(self) -> None:
        """Destroys the communicator."""
        self.call("ncclCommDestroy", self.communicator)
        self.communicator = c_void_p()

    def _checked(self, name: str, *arguments: Any) -> Call:
        """A prepared call."""
        act, check = self._function(name), self.check

        def run() -> None:
            code = act(*arguments)
            if code:
                check(code, name)

        return run

    def grouped(self, calls: list[Call]) -> Call:
        """Several calls as one, between ncclGroupStart and ncclGroupEnd."""
        start, end = self._checked("ncclGroupStart"), self._checked("ncclGroupEnd")

        def run() -> None:
            start()
            for call in calls:
                call()
            end()

        return run

    def prepared(self, case: Case, shape: Shape, send: int, receive: int, stream: c_void_p) -> Call:
        """One call of the case's operation on these buffers."""
        datatype = DATATYPES[case.datatype]
        tail = (self.communicator, stream)
        count, kind = c_size_t(shape.count), c_int(datatype.code)
        buffers = (c_void_p(send), c_void_p(receive))
        operator = c_int(REDUCTIONS.get(case.reduction, 0))
        root = c_int(case.root)
        name = case.operation
        if name in ("allreduce", "reducescatter"):
            return self._checked(case.what.needs[0], *buffers, count, kind, operator, *tail)
        if name == "allgather":
            return self._checked("ncclAllGather", *buffers, count, kind, *tail)
        if name == "broadcast":
            return self._checked("ncclBroadcast", *buffers, count, kind, root, *tail)
        if name == "reduce":
            return self._checked("ncclReduce", *buffers, count, kind, operator, root, *tail)
        if name in NATIVE and self.has_native(NATIVE[name]):
            root_too = () if name == "alltoall" else (root,)
            return self._checked(NATIVE[name], *buffers, count, kind, *root_too, *tail)
        step = shape.count * datatype.size_bytes
        ends = [
            self._checked("ncclSend", c_void_p(send + place * step), count, kind, c_int(to), *tail)
            for to, place in sends_of(case, self.rank)
        ] + [
            self._checked(
                "ncclRecv", c_void_p(receive + place * step), count, kind, c_int(of), *tail
            )
            for of, place in receives_of(case, self.rank)
        ]
        return self.grouped(ends)


def sends_of(case: Case, rank: int) -> list[tuple[int, int]]:
    """Whom a rank sends to, and which share of its buffer."""
    everybody = range(case.ranks)
    if case.operation == "alltoall":
        return [(peer, peer) for peer in everybody]
    if case.operation == "gather":
        return [(case.root, 0)]
    if case.operation == "scatter":
        return [(peer, peer) for peer in everybody] if rank == case.root else []
    return [(pair_of(case.what, rank, case.ranks)[0], 0)]


def receives_of(case: Case, rank: int) -> list[tuple[int, int]]:
    """Whom a rank receives from, and into which share of its buffer."""
    everybody = range(case.ranks)
    if case.operation == "alltoall":
        return [(peer, peer) for peer in everybody]
    if case.operation == "gather":
        return [(peer, peer) for peer in everybody] if rank == case.root else []
    if case.operation == "scatter":
        return [(case.root, 0)]
    return [(pair_of(case.what, rank, case.ranks)[1], 0)]
