"""The functions of NCCL that a benchmark needs, through ctypes.

A call is prepared once, with arguments that are ctypes objects already: a timed loop repeats only
the C function and a comparison.
"""

import ctypes
from collections.abc import Callable
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_size_t, c_void_p
from typing import Any

from ncclscope.bench.datatypes import DATATYPES, REDUCTIONS, REDUCTIONS_SINCE, element_bytes
from ncclscope.bench.operations import NATIVE, BenchOperation, Shape, peers_of
from ncclscope.bench.plan import Case
from ncclscope.bench.shared_library import find_function, load
from ncclscope.errors import NcclscopeError
from ncclscope.nccl.releases import release_of_code, text_of

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
    """NCCL's library, and this process's communicator."""

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
        return find_function(self._library, self.path, name)

    def check(self, code: int, what: str) -> None:
        """Raises NCCL's error, if `code` is one."""
        if not code:
            return
        text = _RESULTS[code] if code < len(_RESULTS) else "unknown error"
        last = self._last_error(None) if self._last_error is not None else None
        details = f": {last.decode(errors='replace').strip()}" if last else ""
        message = f"NCCL failed: {what}: {text} ({code}){details}"
        raise NcclscopeError(message, "NCCL_DEBUG=WARN makes NCCL say more")

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function of NCCL and checks its result."""
        self.check(self._function(name)(*arguments), name)

    def version(self) -> int:
        """NCCL's version as it encodes it: 22809 for 2.28.9."""
        code = c_int()
        self.call("ncclGetVersion", byref(code))
        return code.value

    def simulation(self) -> str:
        """The description of a simulated NCCL; "" for a real one."""
        describe = getattr(self._library, "ncclscopeSimulation", None)
        if describe is None:
            return ""
        describe.restype = c_char_p
        return (describe() or b"simulated").decode(errors="replace")

    def has_native(self, name: str) -> bool:
        """Whether this release has a function that NCCL 2.28 added."""
        return hasattr(self._library, name) and release_of_code(self.version()) >= (2, 28)

    def check_support(
        self, operations: list[BenchOperation], datatypes: list[str], reductions: list[str]
    ) -> None:
        """Raises if this release lacks an operation, a datatype or a reduction operator."""
        for operation in operations:
            for name in operation.needs:
                self._function(name)
        release = release_of_code(self.version())
        for what, since in [
            *((f"datatype {name}", DATATYPES[name].since) for name in datatypes),
            *((f"operator {name}", REDUCTIONS_SINCE.get(name, (2, 0))) for name in reductions),
        ]:
            if release[:2] < since:
                message = f"cannot use {self.path}: NCCL {text_of(release)} has no {what}"
                needed = ".".join(map(str, since))
                raise NcclscopeError(message, f"Use NCCL {needed} or newer")

    def new_id(self) -> bytes:
        """A new id for a communicator; one rank makes it for all."""
        unique_id = UniqueId()
        self.call("ncclGetUniqueId", byref(unique_id))
        return bytes(unique_id)

    def create_communicator(self, id_bytes: bytes, rank: int, ranks: int) -> None:
        """Creates this process's communicator with the other ranks that have the same id."""
        self.rank, self.ranks = rank, ranks
        unique_id = UniqueId.from_buffer_copy(id_bytes)
        comm = byref(self.communicator)
        self.call("ncclCommInitRank", comm, c_int(ranks), unique_id, c_int(rank))

    def destroy_communicator(self) -> None:
        """Destroys the communicator."""
        self.call("ncclCommDestroy", self.communicator)
        self.communicator = c_void_p()

    def _prepare(self, name: str, *arguments: Any) -> Call:
        """A call of a function with these arguments, its result checked."""
        function, check = self._function(name), self.check

        def run() -> None:
            code = function(*arguments)
            if code:
                check(code, name)

        return run

    def group(self, calls: list[Call]) -> Call:
        """Several calls as one, between ncclGroupStart and ncclGroupEnd."""
        start, end = self._prepare("ncclGroupStart"), self._prepare("ncclGroupEnd")

        def run() -> None:
            start()
            for call in calls:
                call()
            end()

        return run

    def prepare(self, case: Case, shape: Shape, send: int, receive: int, stream: c_void_p) -> Call:
        """One call of the case's operation on these buffers."""
        datatype = DATATYPES[case.datatype]
        tail = (self.communicator, stream)
        count, number = c_size_t(shape.count), c_int(datatype.number)
        buffers = (c_void_p(send), c_void_p(receive))
        operator = c_int(REDUCTIONS.get(case.reduction, 0))
        root = c_int(case.root)
        name = case.operation
        if name in ("allreduce", "reducescatter"):
            return self._prepare(case.spec.needs[0], *buffers, count, number, operator, *tail)
        if name == "allgather":
            return self._prepare("ncclAllGather", *buffers, count, number, *tail)
        if name == "broadcast":
            return self._prepare("ncclBroadcast", *buffers, count, number, root, *tail)
        if name == "reduce":
            return self._prepare("ncclReduce", *buffers, count, number, operator, root, *tail)
        if name in NATIVE and self.has_native(NATIVE[name]):
            roots = () if name == "alltoall" else (root,)
            return self._prepare(NATIVE[name], *buffers, count, number, *roots, *tail)
        share = shape.count * element_bytes(datatype)
        return self.group(
            [
                self._prepare(
                    function, c_void_p(buffer + place * share), count, number, c_int(peer), *tail
                )
                for function, buffer, transfers in (
                    ("ncclSend", send, sends_of(case, self.rank)),
                    ("ncclRecv", receive, receives_of(case, self.rank)),
                )
                for peer, place in transfers
            ]
        )


def sends_of(case: Case, rank: int) -> list[tuple[int, int]]:
    """The ranks that a rank sends to, and the share of its buffer for each."""
    shares = [(peer, peer) for peer in range(case.ranks)]
    if case.operation == "alltoall":
        return shares
    if case.operation == "gather":
        return [(case.root, 0)]
    if case.operation == "scatter":
        return shares if rank == case.root else []
    return [(peers_of(case.spec, rank, case.ranks)[0], 0)]


def receives_of(case: Case, rank: int) -> list[tuple[int, int]]:
    """The ranks that a rank receives from, and the share of its buffer for each."""
    shares = [(peer, peer) for peer in range(case.ranks)]
    if case.operation == "alltoall":
        return shares
    if case.operation == "gather":
        return shares if rank == case.root else []
    if case.operation == "scatter":
        return [(case.root, 0)]
    return [(peers_of(case.spec, rank, case.ranks)[1], 0)]
