"""The simulated NCCL through ctypes: the functions that a rank of a scenario calls."""

import ctypes as c
import threading
from collections.abc import Sequence
from typing import Any

from ncclscope.errors import NcclscopeError
from ncclscope.native import simulated_nccl_path
from ncclscope.nccl.datatypes import DATATYPES
from ncclscope.simulation.scenario import Call

ID_BYTES = 128
_SUM = 0
_CONFIG_MAGIC = 0xCAFEBEEF
_UNDEFINED = -(1 << 31)
# Where the next operation of this thread stops; as in native/harness/sim/nccl_api.h.
HOLD_LAUNCH, HOLD_END, HOLD_SENDS, HOLD_LAST_RECEIVE = 1, 2, 4, 8
_HOST_FUNCTION = c.CFUNCTYPE(None, c.c_void_p)


class _Id(c.Structure):
    _fields_ = (("bytes", c.c_char * ID_BYTES),)


class _Config(c.Structure):
    _fields_ = (
        ("size", c.c_size_t),
        ("magic", c.c_uint),
        ("version", c.c_uint),
        ("numbers", c.c_int * 4),
        ("net_name", c.c_char_p),
        ("more_numbers", c.c_int * 2),
        ("comm_name", c.c_char_p),
    )


def _never_return(_: object) -> None:
    threading.Event().wait()


class SimulatedNccl:
    """The library; a call that fails raises."""

    def __init__(self) -> None:
        self._library = c.CDLL(str(simulated_nccl_path()))
        self._library.ncclCommInitRankConfig.argtypes = (
            c.POINTER(c.c_void_p), c.c_int, _Id, c.c_int, c.POINTER(_Config),
        )  # fmt: skip
        self._library.ncclGetLastError.restype = c.c_char_p
        self._library.ncclGetLastError.argtypes = (c.c_void_p,)
        self._version = self._number("ncclGetVersion")

    def _do(self, function: str, *arguments: Any) -> None:
        code = getattr(self._library, function)(*arguments)
        if code:
            why = self._library.ncclGetLastError(None).decode() if function[0] == "n" else ""
            raise NcclscopeError(f"{function} failed with code {code}: {why}")

    def _number(self, function: str) -> int:
        value = c.c_int()
        self._do(function, c.byref(value))
        return value.value

    def unique_id(self) -> bytes:
        """An id for a new communicator."""
        unique_id = _Id()
        self._do("ncclGetUniqueId", c.byref(unique_id))
        return bytes(unique_id)

    def _config(self, name: str) -> Any:
        unknown = (_UNDEFINED,) * 4
        config = _Config(
            c.sizeof(_Config), _CONFIG_MAGIC, self._version, unknown, None, unknown[:2],
            name.encode(),
        )  # fmt: skip
        return c.pointer(config)

    def communicator(self, name: str, unique_id: bytes, ranks: int, rank: int) -> c.c_void_p:
        """A communicator of that id; waits until all its ranks have joined."""
        comm = c.c_void_p()
        comm_id = _Id.from_buffer_copy(unique_id)
        self._do("ncclCommInitRankConfig", c.byref(comm), ranks, comm_id, rank, self._config(name))
        return comm

    def split(self, name: str, parent: c.c_void_p, color: int, key: int) -> c.c_void_p:
        """A communicator of some ranks of another one."""
        comm = c.c_void_p()
        self._do("ncclCommSplit", parent, color, key, c.byref(comm), self._config(name))
        return comm

    def destroy(self, communicators: Sequence[c.c_void_p]) -> None:
        """Destroys communicators in this order."""
        for comm in communicators:
            self._do("ncclCommDestroy", comm)

    def memory(self, size_bytes: int) -> c.c_void_p:
        """Cleared memory of the simulated GPU."""
        pointer = c.c_void_p()
        self._do("cudaMalloc", c.byref(pointer), c.c_size_t(size_bytes))
        self._do("cudaMemset", pointer, 0, c.c_size_t(size_bytes))
        return pointer

    def stream(self) -> c.c_void_p:
        """A new CUDA stream."""
        stream = c.c_void_p()
        self._do("cudaStreamCreate", c.byref(stream))
        return stream

    def block(self, stream: c.c_void_p) -> None:
        """Blocks a stream: nothing that is queued after this runs."""
        self._blocker = _HOST_FUNCTION(_never_return)
        self._do("cudaLaunchHostFunc", stream, self._blocker, None)

    def hold(self, what: int) -> None:
        """Stops the next operation of this thread at the given HOLD_* points."""
        self._library.ncclscopeHold(what)

    def wait(self, stream: c.c_void_p) -> None:
        """Waits until the stream is idle."""
        self._do("cudaStreamSynchronize", stream)

    def call(
        self,
        call: Call,
        communicator: c.c_void_p,
        ranks: int,
        rank: int,
        buffers: tuple[c.c_void_p, c.c_void_p],
        stream: c.c_void_p,
        times: tuple[int, int] = (1, 1),
    ) -> None:
        """Makes a scenario's call; `rank` is the rank in the communicator, `times` are the factors
        by which a SendRecv sends and receives more than the call's size.
        """
        send, recv = buffers
        count, datatype = c.c_size_t(call.count(ranks)), DATATYPES[call.datatype].number
        if call.function == "SendRecv":
            after, before = (rank + 1) % ranks, (rank - 1) % ranks
            sent, received = (c.c_size_t(count.value * factor) for factor in times)
            self._do("ncclGroupStart")
            self._do("ncclSend", send, sent, datatype, after, communicator, stream)
            self._do("ncclRecv", recv, received, datatype, before, communicator, stream)
            self._do("ncclGroupEnd")
            return
        more: tuple[int, ...] = {
            "AllGather": (),
            "Broadcast": (call.root,),
            "Reduce": (_SUM, call.root),
        }.get(call.function, (_SUM,))
        name = f"nccl{call.function}"
        self._do(name, send, recv, count, datatype, *more, communicator, stream)
