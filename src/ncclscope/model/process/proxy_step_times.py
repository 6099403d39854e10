"""Times of proxy steps for aligning clocks: data is not received before it was sent."""

from dataclasses import dataclass

import numpy as np

from ncclscope.arrays.joins import positions_of, running_count
from ncclscope.arrays.types import Bools, Ints
from ncclscope.capture import layout
from ncclscope.capture.columns import START_NS, HeadFilter, elapsed_column, flag_column, key, number
from ncclscope.model.process.events import ProcessEvents
from ncclscope.model.schema import NONE

KINDS = ("ProxyOp", "ProxyStep")
# State 9 (SendWait) of sends, 11 (RecvFlushWait) of receives.
_SENT = elapsed_column("dt", 2, HeadFilter(states=layout.STATE_THIRD, not_states=layout.STATE_RECV))
_RECEIVED = elapsed_column("dt", 1, HeadFilter(states=layout.STATE_SECOND | layout.STATE_RECV))
# Of long jobs not all steps are needed; both sides of a connection leave out the same ones.
_ALL_OPS, _EVERY = 4096, 64


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Steps of one process. Communicators are its numbers, times are on its host's clock."""

    communicator: Ints
    sender: Ints
    receiver: Ints
    channel: Ints
    order: Ints
    step: Ints
    time_ns: Ints

    def of(self, mask: Bools) -> "StepTimes":
        """The steps of a mask."""
        return StepTimes(*(getattr(self, name)[mask] for name in self.__slots__))


def steps_of(decoded: ProcessEvents) -> tuple[StepTimes, StepTimes]:
    """Sends with the time at which the network got them, receives with the time of their arrival.
    `decoded` must have KINDS.
    """
    ops, steps = decoded["ProxyOp"], decoded["ProxyStep"]
    if not len(steps):
        none = StepTimes(*(np.empty(0, np.int64) for _ in range(7)))
        return none, none
    op_columns = ops.read(
        start_ns=START_NS,
        is_send=flag_column(HeadFilter(flags=layout.FLAG_SEND)),
        rank=number("rank"),
        peer=number("peer"),
        comm=number("comm"),
        channel=number("chan"),
        ctx_nonce=number("ctx_nonce"),
    )
    is_send, comm, channel = op_columns["is_send"], op_columns["comm"], op_columns["channel"]
    rank, peer = op_columns["rank"], op_columns["peer"]
    strand = ((comm << 8 | channel) << 1 | is_send) << 24 | (peer & 0xFFFFFF)
    by_time = np.argsort(op_columns["start_ns"], kind="stable")
    order = np.empty(len(ops), np.int64)
    order[by_time] = running_count(strand[by_time])
    own = op_columns["ctx_nonce"] == decoded.process.header.nonce
    own &= (order < _ALL_OPS) | (order % _EVERY == 0)
    step = steps.read(parent=key("parent"), step=number("step"), sent=_SENT, received=_RECEIVED)
    op = positions_of(ops.keys, step["parent"])
    kept = np.flatnonzero((op != NONE) & (own[op] if len(ops) else False))
    op = op[kept]
    times = StepTimes(
        communicator=comm[op],
        sender=np.where(is_send[op], rank[op], peer[op]),
        receiver=np.where(is_send[op], peer[op], rank[op]),
        channel=channel[op],
        order=order[op],
        step=step["step"][kept],
        time_ns=np.where(is_send[op], step["sent"][kept], step["received"][kept]),
    )
    known = times.time_ns != NONE
    return times.of(known & is_send[op]), times.of(known & ~is_send[op])
