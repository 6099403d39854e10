"""The profilers that `bench` can compare: how each is switched on, and how its output is read.

`{output}` in a variable or command stands for the directory of one run. What a profiler's numbers
do not say belongs to its `limits`: every table shows them, ncclscope's own like the others'.
"""

import importlib.util
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ncclscope.native import empty_plugin_path, plugin_path
from ncclscope.nccl.events import MODE_EVENTS, MODES

NONE = "none"
_TIMINGS = ("kernel", "sampled", "off")
_PLUGIN_FOLDERS = ("/usr/local/lib", "/usr/lib", "/usr/lib/x86_64-linux-gnu", "/opt/nccl/lib")


@dataclass(frozen=True, slots=True)
class Profiler:
    """One profiler. `reader`: the capture's reader, or a format's name; "": writes no calls."""

    name: str
    title: str
    variables: Mapping[str, str] = field(default_factory=dict)
    library: str = ""  # the plugin's usual file name; "": it is no plugin of its own
    program: str = ""  # that must be installed
    prefix: tuple[str, ...] = ()  # command that each rank is started with
    reader: str = ""
    in_output: bool = False  # it writes into the current directory
    torch: bool = False  # it sees PyTorch's calls only, so it is compared in training
    limits: tuple[str, ...] = ()

    def plugin(self, environment: Mapping[str, str]) -> Path | None:
        """The plugin's path, found as the linker would; None: not installed."""
        folders = [*environment.get("LD_LIBRARY_PATH", "").split(os.pathsep), *_PLUGIN_FOLDERS]
        paths = (Path(folder, self.library) for folder in folders if folder)
        return next((path for path in paths if path.is_file()), None)

    def why_absent(self, environment: Mapping[str, str]) -> str:
        """Why it cannot be used here; "" if it can."""
        if self.library and self.plugin(environment) is None:
            return f"no {self.library} on LD_LIBRARY_PATH; name it: {self.name}=PATH.so"
        if self.program and shutil.which(self.program, path=environment.get("PATH")) is None:
            return f"no {self.program} on PATH"
        if self.torch and importlib.util.find_spec("torch") is None:
            return "PyTorch is not installed"
        return ""


_SAMPLED = ("GPU times are a sample: no time for every call, and intervals instead of exact means",)
_PROFILE = ("one record for each operation and size, not for each call",)
_KERNEL = ("NCCL's KernelCh events slow small operations down",)


def _ncclscope(mode: str, timing: str) -> Profiler:
    """ncclscope in one mode; timing "" is the mode's own."""
    sampled = timing == "sampled" or (not timing and mode == "profile")
    limits: tuple[str, ...] = _PROFILE if mode == "profile" else ()
    limits += _SAMPLED if sampled else () if timing == "off" else _KERNEL
    limits += ("no GPU times",) if timing == "off" else ()
    variables = {
        "NCCL_PROFILER_PLUGIN": str(plugin_path()),
        "NCCLSCOPE_DIR": "{output}/capture",
        "NCCLSCOPE_MODE": mode,
        "NCCLSCOPE_GPU_TIMING": timing or "auto",
    }
    suffix = f"-{timing}" if timing else ""
    title = f"ncclscope, {mode} mode" + (f", GPU timing {timing}" if timing else "")
    return Profiler(f"ncclscope-{mode}{suffix}", title, variables, reader="capture", limits=limits)


def _all_ncclscope() -> list[Profiler]:
    return [_ncclscope(mode, timing) for mode in MODES for timing in ("", *_TIMINGS)]


def _others() -> list[Profiler]:
    return [
        Profiler(NONE, "no plugin", {"NCCL_PROFILER_PLUGIN": "none"}),
        Profiler(
            "empty",
            "a plugin that asks for all events of trace mode and ignores them",
            {
                "NCCL_PROFILER_PLUGIN": str(empty_plugin_path()),
                "NCCLSCOPE_EMPTY_EVENTS": hex(MODE_EVENTS["trace"]),
            },
            limits=("records nothing: what NCCL itself costs with any plugin",),
        ),
        Profiler(
            "inspector",
            "NCCL Inspector, JSON every 500 µs as its README says",
            {
                "NCCL_INSPECTOR_ENABLE": "1",
                "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": "500",
                # It exists already: ranks that make it at once leave no file, all but one.
                "NCCL_INSPECTOR_DUMP_DIR": "{output}",
            },
            library="libnccl-profiler-inspector.so",
            reader="inspector",
            limits=(
                "times are whole µs of the longest channel, cut off: at most 1 µs too short",
                "no sends and receives before 2.30; from 2.30 on nothing below 8 KiB by default",
            ),
        ),
        Profiler(
            "example",
            "NCCL's example profiler with its own pool sizes",
            {"NCCL_PROFILE_EVENT_MASK": "4095", "NCCL_PROFILE_DUMP_FILE": "{output}/trace"},
            library="libnccl-profiler-example.so",
            reader="example",
            limits=(
                "keeps 8 events of a kind unless the pools are enlarged",
                "times are the host's, from the enqueued call to its last event",
            ),
        ),
        Profiler(
            "ncclsee",
            "ncclsee",
            library="libnccl-profiler-ncclsee.so",
            reader="chrome,ncclsee",
            in_output=True,
            limits=("its CSV has totals by range of sizes: means only, and no single size",),
        ),
        Profiler(
            "comma",
            "Google CoMMA",
            {
                "NCCL_PROFILER_USE_GPUVIZ": "false",
                "NCCL_PROFILER_LATENCY_FILE": "{output}/latency-%p.jsonl",
            },
            library="libnccl-profiler-comma.so",
            reader="comma",
            limits=(
                "times run from the enqueued call to the last network transfer, queueing included",
                "leaves out most operations up to 64 KiB, and samples receives, by default",
            ),
        ),
        Profiler(
            "nsys",
            "NVIDIA Nsight Systems",
            program="nsys",
            prefix=(
                "nsys", "profile", "--trace=cuda,nvtx", "--export=sqlite", "--force-overwrite=true",
                "--output={output}/rank%q{{RANK}}",
            ),
            reader="nsys",
            limits=("records the whole process within a window; files grow with all CUDA calls",),
        ),
        Profiler(
            "torch-profiler",
            "PyTorch's profiler",
            {"NCCLSCOPE_BENCH_TRAINING_PROFILER": "{output}"},
            reader="chrome",
            torch=True,
            limits=("records the steps of a window; kernels by CUPTI, with all other kernels",),
        ),
        Profiler(
            "flight-recorder",
            "PyTorch's Flight Recorder",
            {
                "NCCLSCOPE_BENCH_TRAINING_FLIGHT_RECORDER": "{output}",
                "TORCH_FR_BUFFER_SIZE": "20000",
                "TORCH_NCCL_TRACE_BUFFER_SIZE": "20000",
                "TORCH_NCCL_ENABLE_TIMING": "1",
            },
            reader="flight-recorder",
            torch=True,
            limits=(
                "knows PyTorch's calls only, the newest of each rank",
                "times are between CUDA events around PyTorch's work, waiting in the stream "
                "included",
            ),
        ),
    ]  # fmt: skip


def known_profilers() -> dict[str, Profiler]:
    """All profilers by name."""
    none, empty, *others = _others()
    return {profiler.name: profiler for profiler in (none, empty, *_all_ncclscope(), *others)}
