"""Proxy steps as what they say about clocks: data is not received before it was sent."""

from dataclasses import dataclass

import numpy as np

from ncclscope.capture import layout
from ncclscope.capture.process import Process
from ncclscope.model.bounds import Steps
from ncclscope.model.decode import Bools, Decoded, Ints, find, numbered
from ncclscope.model.tables import NONE

KINDS = ("ProxyOp", "ProxyStep")
# Of long jobs not all steps are needed. Both sides of a connection leave out the same ones.
_ALL_OPS, _EVERY = 4096, 64


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Steps of one process. Communicators are its numbers, times its host's."""

    communicator: Ints
    sender: Ints
    receiver: Ints
    channel: Ints
    order: Ints
    step: Ints
    time_ns: Ints

    def of(self, mask: Bools) -> "StepTimes":
        """Those that the mask marks."""
        return StepTimes(*(getattr(self, name)[mask] for name in self.__slots__))


def placed(times: StepTimes, comm_rows: Ints, node: int) -> Steps:
    """The same with rows of the capture's communicators, on a node."""
    times = times.of(times.communicator < len(comm_rows) - 1)  # the last place is nobody's
    return Steps(
        comm_rows[times.communicator],
        times.sender,
        times.receiver,
        times.channel,
        times.order,
        times.step,
        np.full(len(times.step), node, np.int64),
        times.time_ns,
    )


def steps_of(decoded: Decoded) -> tuple[StepTimes, StepTimes]:
    """Sends by the time they were handed to the network, receives by the time they had arrived.

    Needs KINDS to be decoded.
    """
    process = decoded.process
    ops, steps = decoded["ProxyOp"], decoded["ProxyStep"]
    slots = ops.slots
    is_send = (slots["flags"] & layout.FLAG_SEND) != 0
    rank, peer = slots["rank"].astype(np.int64), slots["peer"].astype(np.int64)
    comm, channel = slots["comm"].astype(np.int64), slots["chan"].astype(np.int64)
    key = ((comm << 8 | channel) << 1 | is_send) << 24 | (peer & 0xFFFFFF)
    by_time = np.argsort(ops.start_ns, kind="stable")
    order = np.empty(len(ops), np.int64)
    order[by_time] = numbered(key[by_time])
    ours = slots["ctx_nonce"] == process.header.nonce
    ours &= (order < _ALL_OPS) | (order % _EVERY == 0)
    op = find(ops.keys, decoded.parents(steps.slots["parent"]))
    kept = np.flatnonzero((op != NONE) & (ours[op] if len(ops) else False))
    op, chosen = op[kept], steps.slots[kept]
    times = StepTimes(
        communicator=comm[op],
        sender=np.where(is_send[op], rank[op], peer[op]),
        receiver=np.where(is_send[op], peer[op], rank[op]),
        channel=channel[op],
        order=order[op],
        step=chosen["step"].astype(np.int64),
        time_ns=_times(process, chosen, is_send[op]),
    )
    known = times.time_ns != NONE
    return times.of(known & is_send[op]), times.of(known & ~is_send[op])


def _times(process: Process, slots: np.ndarray, is_send: Bools) -> Ints:
    """State 9 (SendWait) of sends, 11 (RecvFlushWait) of receives; NONE without it."""
    which = np.where(is_send, 2, 1)
    bit = np.where(is_send, layout.STATE_THIRD, layout.STATE_SECOND)
    recv = (slots["states"] & layout.STATE_RECV) != 0
    there = ((slots["states"] & bit) != 0) & (recv != is_send)
    elapsed = slots["dt"][np.arange(len(slots)), which].astype(np.uint64)
    return np.where(there, process.clock.to_ns(slots["t0"] + elapsed), NONE)
