"""Channels of works: the kernel events that NCCL reported, and the works' times by them."""

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ncclscope.arrays import _abi
from ncclscope.arrays.chunks import map_chunks
from ncclscope.arrays.joins import positions_of
from ncclscope.arrays.library import address, empty_array, full_array, length_arg, library, pointer
from ncclscope.capture import layout
from ncclscope.capture.columns import START_NS, HeadFilter, ReadPlan, key, number, time
from ncclscope.model.process import stamp_repair
from ncclscope.model.process.events import Bools, Ints, ProcessEvents
from ncclscope.model.process.gpu_clock import NOTHING, Bound, GpuClock
from ncclscope.model.process.works import Works

_STOP_STAMPED = HeadFilter(states=layout.STATE_FIRST)
_BOTH_STAMPED = HeadFilter(states=layout.STATE_FIRST, not_flags=layout.FLAG_NO_STAMP)
_ENDED = HeadFilter(states=layout.STATE_STOPPED, not_states=layout.STATE_FIRST)
_REPORTED = {
    "parent": key("parent"),
    "channel": number("chan", "i2"),
    "comm": number("comm", "i4"),
    "gpu_start": number("gpu_start", when=HeadFilter(not_flags=layout.FLAG_NO_STAMP)),
    "gpu_stop": number("gpu_stop", when=_BOTH_STAMPED),
    "seen_start_ns": START_NS,
    "seen_end_ns": time("t_stop", _STOP_STAMPED, otherwise=time("t1", _ENDED)),
}
CHANNEL_PLANS = {"KernelCh": ReadPlan(_REPORTED)}


@dataclass(frozen=True, slots=True)
class Channels:
    """Channels of works, one row each. Stamps are on the GPU's clock."""

    work: Ints  # place among the works, NONE: its work is not on record
    comm: npt.NDArray[np.int32]  # number within the process
    channel: npt.NDArray[np.int16]
    gpu: npt.NDArray[np.int32]
    gpu_start: Ints
    gpu_stop: Ints
    seen_start_ns: Ints
    seen_end_ns: Ints  # NONE: still running
    stamp: npt.NDArray[np.int8]
    reason: npt.NDArray[np.int8]

    def for_c(self) -> _abi.Channels:
        """For the compiled loops; it must not outlive the channels."""
        arrays: tuple[npt.NDArray[Any], ...] = (
            self.work,
            self.comm,
            self.channel,
            self.gpu_start,
            self.gpu_stop,
            self.seen_start_ns,
            self.seen_end_ns,
            self.stamp,
            self.reason,
            self.gpu,
        )
        return _abi.Channels(len(self.work), *map(address, arrays))

    def strands(self) -> tuple[npt.NDArray[np.int32], int]:
        """A number for each channel of each communicator (a strand), by event; NONE for events
        without stamps. And how many strands there are.
        """
        strand = empty_array(len(self.work), np.int32)
        strands = library().ncclscope_strands(ctypes.byref(self.for_c()), pointer(strand))
        if strands < 0:
            raise MemoryError
        return strand, strands

    def launches(self, gpu: int, launch_ns: Ints) -> tuple[Ints, Bools, int]:
        """By event when the launch of its work began; which of these bound the GPU's clock from
        above, and how many do. `launch_ns`: by work.
        """
        launched, sure = (
            empty_array(len(self.work), np.int64),
            empty_array(len(self.work), np.bool_),
        )
        number = library().ncclscope_launches_of_channels(
            ctypes.byref(self.for_c()),
            ctypes.c_int64(gpu),
            pointer(launch_ns),
            length_arg(launch_ns),
            pointer(launched),
            pointer(sure),
        )
        return launched, sure, number

    def fitting(
        self,
        strand: npt.NDArray[np.int32],
        strands: int,
        lower: dict[int, Bound],
        not_before_ns: Ints,
        works: Works,
    ) -> Bools:
        """Of which strands all stamps fit: each work after its launch and after the work before
        it.
        """
        fits = np.empty(strands, np.bool_)
        clocks = _clocks_for_c({gpu: GpuClock(bound, NOTHING, 0) for gpu, bound in lower.items()})
        if library().ncclscope_fitting(
            ctypes.byref(self.for_c()),
            pointer(strand),
            ctypes.c_int64(strands),
            ctypes.byref(clocks),
            pointer(not_before_ns),
            pointer(works.group),
            ctypes.c_int64(len(works)),
            pointer(fits),
        ):
            raise MemoryError
        return fits


def _clocks_for_c(clocks: dict[int, GpuClock]) -> _abi.GpuClocks:
    """Clocks by GPU; the result must not outlive them."""
    for_c = (_abi.GpuClock * (max(clocks, default=-1) + 1))()
    for gpu, clock in clocks.items():
        for_c[gpu] = _abi.GpuClock(clock.lower.for_c(), clock.minus_upper.for_c())
    return _abi.GpuClocks(len(for_c), for_c)


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """By work what its channels show."""

    start_ns: Ints  # host clock; NONE without a believable stamp
    end_ns: Ints
    stamp: npt.NDArray[np.int8]  # the worst of its channels; NONE without any
    reason: npt.NDArray[np.int8]  # of stamp_repair.REASONS
    partial: Bools  # some channels have no believable stamp
    seen_start_ns: Ints  # when the host noticed; NONE without kernel events
    seen_end_ns: Ints
    running: Bools  # a channel started and did not stop
    kernels: npt.NDArray[np.int32]  # channels that NCCL reported


def reported(decoded: ProcessEvents, works: Works, gpu_of_comm: Ints) -> Channels:
    """Kernel events as NCCL reported them."""
    events = decoded["KernelCh"]
    read = events.read(**_REPORTED)
    comm, gpus = read["comm"], gpu_of_comm.astype(np.int32)
    one_gpu = (gpus == gpus[0]).all()
    return Channels(
        work=positions_of(works.keys, read["parent"]),
        comm=comm,
        channel=read["channel"],
        gpu=full_array(len(comm), np.int32, gpus[0])
        if one_gpu
        else gpus[np.minimum(comm, len(gpus) - 1)],
        gpu_start=read["gpu_start"],
        gpu_stop=read["gpu_stop"],
        seen_start_ns=read["seen_start_ns"],
        seen_end_ns=read["seen_end_ns"],
        stamp=full_array(len(events), np.int8, stamp_repair.MISSING),
        reason=full_array(len(events), np.int8, 0),
    )


def on_host_clock(channels: Channels, clocks: dict[int, GpuClock]) -> tuple[Ints, Ints]:
    """Start and end of each channel on the host's clock, NONE without a believable stamp."""
    start, end = (
        empty_array(len(channels.work), np.int64),
        empty_array(len(channels.work), np.int64),
    )
    library().ncclscope_time_channels(
        ctypes.byref(channels.for_c()),
        ctypes.byref(_clocks_for_c(clocks)),
        pointer(start),
        pointer(end),
    )
    return start, end


def _is_partial(
    timed: npt.NDArray[np.int32],
    kernels: npt.NDArray[np.int32],
    channels: npt.NDArray[np.int16],
) -> Bools:
    return np.asarray((timed > 0) & (timed < np.maximum(kernels, channels)))


def times_of_works(works: Works, channels: Channels, clocks: dict[int, GpuClock]) -> KernelTimes:
    """Works' times over all their channels, on the host's clock."""
    rows = len(works)
    first, last, seen_first, seen_last = (empty_array(rows, np.int64) for _ in range(4))
    timed, kernels = empty_array(rows, np.int32), empty_array(rows, np.int32)
    stamp, reason = empty_array(rows, np.int8), empty_array(rows, np.int8)
    running = empty_array(rows, np.bool_)
    arrays: tuple[npt.NDArray[Any], ...] = (
        first,
        last,
        seen_first,
        seen_last,
        timed,
        kernels,
        stamp,
        reason,
        running,
    )
    library().ncclscope_times_of_works(
        ctypes.byref(channels.for_c()),
        ctypes.byref(_clocks_for_c(clocks)),
        ctypes.byref(_abi.WorkTimes(rows, *map(address, arrays))),
    )
    return KernelTimes(
        start_ns=first,
        end_ns=last,
        stamp=stamp,
        reason=reason,
        partial=map_chunks(_is_partial, np.bool_, timed, kernels, works.channels),
        seen_start_ns=seen_first,
        seen_end_ns=seen_last,
        running=running,
        kernels=kernels,
    )
