"""The functions of CUDA's runtime that a benchmark needs, through ctypes."""

import ctypes
from collections.abc import Callable
from ctypes import byref, c_float, c_int, c_size_t, c_ulonglong, c_void_p
from dataclasses import dataclass
from typing import Any

from ncclscope.bench.reference_kernel import reference_kernel
from ncclscope.bench.shared_library import find_function, load
from ncclscope.errors import NcclscopeError

_OUT_OF_MEMORY = 2
_TO_DEVICE, _TO_HOST = 1, 2
_THREAD_LOCAL = 1  # cudaStreamCaptureModeThreadLocal
_PROPERTIES_BYTES = 1 << 14  # more than any release's cudaDeviceProp, which begins with the name
_NAME_BYTES = 256
_SEMAPHORE_BYTES = 64  # more than any sem_t


@dataclass(frozen=True)
class CapturedGraph:
    """A CUDA graph of captured calls."""

    launch: Callable[[], None]
    release: Callable[[], None]


@dataclass(frozen=True)
class ReferenceWork:
    """GPU work whose own duration is known."""

    kind: str  # kernel or memset
    launch: Callable[[], None]
    own_ns: "ctypes.Array[ctypes.c_int64]"  # of each launch of a batch


class Cuda:
    """CUDA on one device, with one stream."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._library = load(path, "CUDA's runtime", "--cudart")
        self._error_string = self._function("cudaGetErrorString")
        self._error_string.restype = ctypes.c_char_p
        self.record = self._function("cudaEventRecord")
        self.synchronize_stream = self._function("cudaStreamSynchronize")
        self._elapsed = self._function("cudaEventElapsedTime_v2", "cudaEventElapsedTime")
        self._libc = ctypes.CDLL(None)
        self._semaphore = ctypes.create_string_buffer(_SEMAPHORE_BYTES)
        self._libc.sem_init(self._semaphore, 0, 0)
        self.stream = c_void_p()

    def _function(self, *names: str) -> Any:
        return find_function(self._library, self.path, *names)

    def check(self, code: int, what: str) -> None:
        """Raises CUDA's error, if `code` is one."""
        if code:
            text = self._error_string(c_int(code)) or b"unknown error"
            raise NcclscopeError(f"CUDA failed: {what}: {text.decode(errors='replace')} ({code})")

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function of the runtime and checks its result."""
        self.check(self._function(name)(*arguments), name)

    def device_count(self) -> int:
        """Number of GPUs that this process sees."""
        count = c_int()
        code = self._function("cudaGetDeviceCount")(byref(count))
        return 0 if code else count.value

    def open_device(self, device: int) -> None:
        """Sets this thread's device, and creates a stream on it."""
        count = self.device_count()
        if device >= count:
            what = "no GPU" if not count else f"no GPU {device}: there are {count}"
            hint = "Use fewer ranks, --share-gpu to put several on one, or --simulate"
            raise NcclscopeError(f"cannot start a rank: {what}", hint)
        self.call("cudaSetDevice", c_int(device))
        self.call("cudaStreamCreate", byref(self.stream))

    def device_name(self, device: int) -> str:
        """The GPU's name; "" if the runtime does not tell it."""
        properties = ctypes.create_string_buffer(_PROPERTIES_BYTES)
        for name in ("cudaGetDeviceProperties_v2", "cudaGetDeviceProperties"):
            get = getattr(self._library, name, None)
            if get is not None and get(properties, c_int(device)) == 0:
                return properties.raw[:_NAME_BYTES].split(b"\0")[0].decode(errors="replace")
        return ""

    def bus_id(self, device: int) -> str:
        """The GPU's PCI bus id; "" if the runtime does not tell it."""
        text = ctypes.create_string_buffer(32)
        get = getattr(self._library, "cudaDeviceGetPCIBusId", None)
        return text.value.decode() if get and get(text, c_int(32), c_int(device)) == 0 else ""

    def runtime_version(self) -> int:
        """CUDA's version as it encodes it, 12080 for 12.8; 0 if the runtime does not tell it."""
        version = c_int()
        get = getattr(self._library, "cudaRuntimeGetVersion", None)
        return version.value if get and get(byref(version)) == 0 else 0

    def allocate(self, size_bytes: int, what: str) -> int:
        """The address of new device memory; `what` names it in an error message."""
        address = c_void_p()
        code = self._function("cudaMalloc")(byref(address), c_size_t(max(size_bytes, 1)))
        if code == _OUT_OF_MEMORY:
            free, total = c_size_t(), c_size_t()
            get = getattr(self._library, "cudaMemGetInfo", None)
            has_info = get is not None and get(byref(free), byref(total)) == 0
            info = f" ({free.value:,} of {total.value:,} free)" if has_info else ""
            message = f"out of GPU memory: {size_bytes:,} bytes for {what}{info}"
            raise NcclscopeError(message, "Choose a smaller size with -e")
        self.check(code, "cudaMalloc")
        return int(address.value or 0)

    def copy_in(self, address: int, data: Any, size_bytes: int) -> None:
        """Copies from host to device."""
        self._copy(c_void_p(address), c_void_p(data.ctypes.data), size_bytes, _TO_DEVICE)

    def copy_out(self, data: Any, address: int, size_bytes: int) -> None:
        """Copies from device to host."""
        self._copy(c_void_p(data.ctypes.data), c_void_p(address), size_bytes, _TO_HOST)

    def _copy(self, target: c_void_p, source: c_void_p, size_bytes: int, kind: int) -> None:
        self.call("cudaMemcpy", target, source, c_size_t(size_bytes), c_int(kind))

    def clear(self, address: int, size_bytes: int) -> None:
        """Fills device memory with a byte that is not in the test data."""
        self.call("cudaMemset", c_void_p(address), c_int(0xA5), c_size_t(size_bytes))

    def events(self, count: int) -> list[c_void_p]:
        """New CUDA events."""
        events = [c_void_p() for _ in range(count)]
        for event in events:
            self.call("cudaEventCreate", byref(event))
        return events

    def elapsed_ns(self, first: c_void_p, last: c_void_p) -> int:
        """Time on the GPU between two events that have been recorded."""
        milliseconds = c_float()
        self.check(self._elapsed(byref(milliseconds), first, last), "cudaEventElapsedTime")
        return round(milliseconds.value * 1e6)

    def synchronize(self) -> None:
        """Waits until the stream is empty."""
        self.check(self.synchronize_stream(self.stream), "cudaStreamSynchronize")

    def hold(self) -> None:
        """Holds the stream: what is queued from now on begins after `end_hold`."""
        wait = ctypes.cast(self._libc.sem_wait, c_void_p)
        self.call("cudaLaunchHostFunc", self.stream, wait, self._semaphore)

    def end_hold(self) -> None:
        """Ends one `hold`."""
        self._libc.sem_post(self._semaphore)

    def capture_graph(self, call: Callable[[], None]) -> CapturedGraph:
        """A CUDA graph of what `call` puts into the stream."""
        graph, executable = c_void_p(), c_void_p()
        self.call("cudaStreamBeginCapture", self.stream, c_int(_THREAD_LOCAL))
        call()
        self.call("cudaStreamEndCapture", self.stream, byref(graph))
        self.call("cudaGraphInstantiateWithFlags", byref(executable), graph, c_ulonglong(0))
        launch, stream = self._function("cudaGraphLaunch"), self.stream

        def replay() -> None:
            code = launch(executable, stream)
            if code:
                self.check(code, "cudaGraphLaunch")

        return CapturedGraph(replay, lambda: self._release(executable, graph))

    def _release(self, executable: c_void_p, graph: c_void_p) -> None:
        self.call("cudaGraphExecDestroy", executable)
        self.call("cudaGraphDestroy", graph)

    def reference_work(self, address: int, launches: int) -> ReferenceWork:
        """Work to launch that often in a batch: a kernel that measures itself, else a memset."""
        place = c_void_p()
        self.call("cudaMallocHost", byref(place), c_size_t(8 * launches))
        assert place.value
        own_ns = (ctypes.c_int64 * launches).from_address(place.value)
        kernel = reference_kernel(self._library, self.stream, place.value, launches)
        if kernel is not None:
            return ReferenceWork("kernel", kernel, own_ns)
        memset = self._function("cudaMemsetAsync")
        arguments = (c_void_p(address), c_int(0), c_size_t(4), self.stream)

        def clear() -> None:
            self.check(memset(*arguments), "cudaMemsetAsync")

        return ReferenceWork("memset", clear, (ctypes.c_int64 * launches)())
