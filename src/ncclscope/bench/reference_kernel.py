"""A kernel that measures its own duration.

CUDA events around it show a longer time. The difference is in the time of every measured call, and
is not NCCL's.

The kernel is launched as NCCL launches its own, and the kernels of all ranks end together, as those
of a collective do: they wait until the GPU's clock reaches a multiple of a power of two. So ranks
that share a GPU slow each other down as they do in every call. The driver compiles the kernel; no
compiler is needed.
"""

import ctypes
from collections.abc import Callable
from ctypes import CDLL, byref, c_char_p, c_int, c_uint, c_uint64, c_ulonglong, c_void_p
from typing import Any

_CUDA_VERSION = 12000  # of the driver functions
_ARGUMENT_BYTES = 4096  # as large as the arguments of NCCL's kernels
_BLOCKS, _THREADS = 8, 640
_PERIOD_NS = 1 << 16  # longer than the launches of several ranks on one GPU take together
# Like NCCL's kernels, it writes its time to host memory.
_PTX = f"""
.version 6.0
.target sm_60
.address_size 64
.visible .entry reference(.param .align 16 .b8 work[{_ARGUMENT_BYTES}]) {{
    .reg .pred %waiting, %other;
    .reg .b32 %thread, %block;
    .reg .b64 %start, %now, %last, %own, %place;
    mov.u64 %start, %globaltimer;
    or.b64 %last, %start, {_PERIOD_NS - 1};
WAIT:
    mov.u64 %now, %globaltimer;
    setp.le.u64 %waiting, %now, %last;
    @%waiting bra WAIT;
    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
    or.b32 %thread, %thread, %block;
    setp.ne.u32 %other, %thread, 0;
    @%other ret;
    sub.u64 %own, %now, %start;
    ld.param.u64 %place, [work];
    st.volatile.u64 [%place], %own;
    ret;
}}
"""


def reference_kernel(
    runtime: CDLL, stream: c_void_p, address: int, places: int
) -> Callable[[], None] | None:
    """A function that launches the kernel into the stream; None if the driver cannot load it.

    Each launch writes its duration in ns to the next of `places` 8-byte words at `address`, and
    begins again at the first after the last.
    """
    load, find, launch = (
        _driver_function(runtime, name)
        for name in (b"cuModuleLoadData", b"cuModuleGetFunction", b"cuLaunchKernel")
    )
    if load is None or find is None or launch is None:
        return None
    module, kernel = c_void_p(), c_void_p()
    if load(byref(module), c_char_p(_PTX.encode())) or find(byref(kernel), module, b"reference"):
        return None
    work = (c_uint64 * (_ARGUMENT_BYTES // 8))(address)
    arguments = (ctypes.POINTER(type(work)) * 1)(ctypes.pointer(work))
    shape = [c_uint(number) for number in (_BLOCKS, 1, 1, _THREADS, 1, 1, 0)]
    end = address + 8 * places

    def run() -> None:
        launch(kernel, *shape, stream, arguments, None)
        work[0] = work[0] + 8 if work[0] + 8 < end else address

    return run if launch(kernel, *shape, stream, arguments, None) == 0 else None


def _driver_function(runtime: CDLL, name: bytes) -> Any:
    """A function of the driver that this runtime uses; None if it has none of that name."""
    pointer, status = c_void_p(), c_int()
    newer = getattr(runtime, "cudaGetDriverEntryPointByVersion", None)
    older = getattr(runtime, "cudaGetDriverEntryPoint", None)
    flags = c_ulonglong(0)
    if newer is not None:
        code = newer(name, byref(pointer), c_uint(_CUDA_VERSION), flags, byref(status))
    elif older is not None:
        code = older(name, byref(pointer), flags, byref(status))
    else:
        return None
    if code or not pointer.value:
        return None
    return ctypes.CFUNCTYPE(c_int)(pointer.value)
