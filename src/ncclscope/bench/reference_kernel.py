"""A kernel that takes its own time: what events show around it beyond that is in the time of every
call and is none of NCCL's work.

It is launched as NCCL launches its own, and those of all ranks end together, as the kernels of a
collective do: they wait until the GPU's clock shows a round number. Ranks that share a GPU then
stand in each other's way as in every call. The driver compiles it; no compiler is needed.
"""

import ctypes
from collections.abc import Callable
from ctypes import CDLL, byref, c_char_p, c_int, c_uint, c_uint64, c_ulonglong, c_void_p
from typing import Any

_CUDA_VERSION = 12000  # whose driver functions are meant
_ARGUMENT_BYTES = 4096  # NCCL hands its work over in the kernel's arguments
_BLOCKS, _THREADS = 8, 640
_PERIOD_NS = 1 << 16  # more than the launches of several ranks on one GPU take together
# As NCCL's kernels do, it leaves its time in the host's memory.
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
    """Launches it into the stream; None where the driver cannot be asked for it.

    Each launch writes the kernel's own ns to the next of so many places of 8 bytes in the host's
    memory, round and round.
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
    """A function of the driver below this runtime, None where it has none."""
    found, status = c_void_p(), c_int()
    newer = getattr(runtime, "cudaGetDriverEntryPointByVersion", None)
    older = getattr(runtime, "cudaGetDriverEntryPoint", None)
    flags = c_ulonglong(0)
    if newer is not None:
        code = newer(name, byref(found), c_uint(_CUDA_VERSION), flags, byref(status))
    elif older is not None:
        code = older(name, byref(found), flags, byref(status))
    else:
        return None
    if code or not found.value:
        return None
    return ctypes.CFUNCTYPE(c_int)(found.value)
