"""A c10d backend on the simulated NCCL: real PyTorch calls the real plugin, without a GPU.

Imported by the programs that tests start; importing it registers the backend `simulated`.
"""

import ctypes as c
import functools
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ncclscope.simulation.nccl import SimulatedNccl

_FLOAT32 = 7
_library: SimulatedNccl | None = None


def _nccl() -> SimulatedNccl:
    global _library
    _library = _library or SimulatedNccl()
    return _library


class _Work(dist._Work):
    """What a call returns; it waits for the simulated stream."""

    def __init__(self, stream: Any, result: Any = None, then: Any = None) -> None:
        super().__init__()
        self._stream, self._result, self._then = stream, result, then

    def wait(self, timeout: timedelta = timedelta(seconds=60)) -> bool:
        _nccl().wait(self._stream)
        if self._then:
            self._then()
        return True

    def is_completed(self) -> bool:
        return True

    def get_future(self) -> Any:
        self.wait()
        future: Any = torch.futures.Future()
        future.set_result(self._result)
        return future


class _Group(dist.ProcessGroup):
    """One process group: one communicator, made with its first call as PyTorch's NCCL backend does."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._store, self._comm, self._name = store, None, ""

    def getBackendName(self) -> str:  # noqa: N802
        return "simulated"

    def getGroupName(self) -> str:  # noqa: N802
        return self._name

    def setGroupName(self, name: str) -> None:  # noqa: N802
        self._name = name

    def _begin(self) -> SimulatedNccl:
        nccl = _nccl()
        if self._comm is None:
            if self.rank() == 0:
                self._store.set("id", nccl.unique_id())
            unique_id = self._store.get("id")
            self._comm = nccl.communicator("", unique_id, self.size(), self.rank())
            self._stream, self._sends, self._receives = (nccl.stream() for _ in range(3))
        return nccl

    def _call(self, name: str, source: int, target: int, count: int, *more: int) -> _Work:
        nccl = self._begin()
        pointers = c.c_void_p(source), c.c_void_p(target)
        nccl._do(name, *pointers, c.c_size_t(count), _FLOAT32, *more, self._comm, self._stream)
        return _Work(self._stream)

    @torch.compiler.disable  # PyTorch's own backends are no Python that it could trace
    def allreduce(self, tensors: Any, options: Any = None) -> _Work:
        (tensor,) = tensors
        same = tensor if tensor.dtype == torch.float32 else tensor.to(torch.float32)
        work = self._call("ncclAllReduce", same.data_ptr(), same.data_ptr(), same.numel(), 0)
        if same is not tensor:
            work.wait()
            tensor.copy_(same)
        return _Work(self._stream, tensors)

    @torch.compiler.disable
    def broadcast(self, tensors: Any, options: Any = None) -> _Work:
        (tensor,) = tensors
        words = _as_words(tensor)
        root = options.rootRank
        self._call("ncclBroadcast", words.data_ptr(), words.data_ptr(), words.numel(), root).wait()
        tensor.copy_(_as_before(words, tensor))
        return _Work(self._stream, tensors)

    @torch.compiler.disable
    def allgather(self, outputs: Any, inputs: Any, options: Any = None) -> _Work:
        words = _as_words(inputs[0])
        gathered = torch.empty(words.numel() * self.size())
        call = ("ncclAllGather", words.data_ptr(), gathered.data_ptr(), words.numel())
        self._call(*call).wait()
        for part, output in zip(gathered.split(words.numel()), outputs[0], strict=True):
            output.copy_(_as_before(part, output))
        return _Work(self._stream, outputs)

    @torch.compiler.disable
    def send(self, tensors: Any, peer: int, tag: int = 0) -> _Work:
        nccl, words = self._begin(), _as_words(tensors[0])
        pointer, count = c.c_void_p(words.data_ptr()), c.c_size_t(words.numel())
        nccl._do("ncclSend", pointer, count, _FLOAT32, peer, self._comm, self._sends)
        return _Work(self._sends, words)  # keeps what is sent

    @torch.compiler.disable
    def recv(self, tensors: Any, peer: int, tag: int = 0) -> _Work:
        nccl, words = self._begin(), _as_words(tensors[0])
        pointer, count = c.c_void_p(words.data_ptr()), c.c_size_t(words.numel())
        nccl._do("ncclRecv", pointer, count, _FLOAT32, peer, self._comm, self._receives)
        arrive = functools.partial(_arrive, words, tensors[0])
        return _Work(self._receives, tensors, arrive)

    @torch.compiler.disable
    def barrier(self, options: Any = None) -> _Work:
        one = torch.zeros(1)
        self._call("ncclAllReduce", one.data_ptr(), one.data_ptr(), 1, 0).wait()
        return _Work(self._stream)


def _as_words(tensor: Any) -> Any:
    """A copy as float32, padded."""
    content = tensor.contiguous().view(-1).view(torch.uint8)
    padded = torch.nn.functional.pad(content, (0, -content.numel() % 4)).clone()
    return padded.view(torch.float32)


def _as_before(words: Any, like: Any) -> Any:
    size = like.numel() * like.element_size()
    return words.contiguous().view(torch.uint8)[:size].view(like.dtype).view(like.shape)


def _arrive(words: Any, tensor: Any) -> None:
    tensor.detach().copy_(_as_before(words, tensor))


def _create(store: Any, rank: int, size: int, timeout: Any) -> _Group:
    return _Group(store, rank, size)


dist.Backend.register_backend("simulated", _create, devices=["cpu"])
