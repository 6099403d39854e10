"""A kernel that does nothing, launched as NCCL launches its own: what events show around it is in
the time of every call and is none of NCCL's work. The driver compiles it; no compiler is needed.
"""

import ctypes
from collections.abc import Callable
from ctypes import CDLL, byref, c_char_p, c_int, c_uint, c_ulonglong, c_void_p
from typing import Any

_CUDA_VERSION = 12000  # whose driver functions are meant
_ARGUMENT_BYTES = 4096  # NCCL hands its work over in the kernel's arguments
_BLOCKS, _THREADS = 8, 640
_PTX = f"""
.version 6.0
.target sm_60
.address_size 64
.visible .entry nothing(.param .align 16 .b8 work[{_ARGUMENT_BYTES}]) {{
    ret;
}}
"""


def empty_kernel(runtime: CDLL, stream: c_void_p) -> Callable[[], None] | None:
    """Launches it into the stream; None where the driver cannot be asked for it."""
    load, find, launch = (
        _driver_function(runtime, name)
        for name in (b"cuModuleLoadData", b"cuModuleGetFunction", b"cuLaunchKernel")
    )
    if load is None or find is None or launch is None:
        return None
    module, kernel = c_void_p(), c_void_p()
    if load(byref(module), c_char_p(_PTX.encode())) or find(byref(kernel), module, b"nothing"):
        return None
    work = (ctypes.c_char * _ARGUMENT_BYTES)()
    arguments = (ctypes.POINTER(type(work)) * 1)(ctypes.pointer(work))
    shape = [c_uint(number) for number in (_BLOCKS, 1, 1, _THREADS, 1, 1, 0)]

    def run() -> None:
        launch(kernel, *shape, stream, arguments, None)

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
