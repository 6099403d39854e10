"""Addresses of the buffers that collectives send."""

import numpy as np

from ncclscope.arrays.joins import positions_of, take
from ncclscope.arrays.types import Ints
from ncclscope.capture import layout
from ncclscope.capture.columns import HeadFilter, flag_column, number
from ncclscope.model.process.events import ProcessEvents


def send_buffers(decoded: ProcessEvents, keys: Ints) -> Ints:
    """By the keys of Coll events; NONE for other keys. A Coll that follows its Group has its
    buffers in the Group's slot.
    """
    events, groups = decoded["Coll"], decoded["Group"]
    in_group = events.read(it=flag_column(HeadFilter(flags=layout.FLAG_IN_GROUP)))["it"]
    own = events.read_extensions(it=number("send_buff"))["it"]
    of_groups = groups.read(it=number("send_buff"))["it"]
    before = take(of_groups, positions_of(groups.keys, events.keys - 1))
    return take(np.where(in_group, before, own), positions_of(events.keys, keys))
