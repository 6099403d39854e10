"""Events of one process by kind, with the stops that other threads reported in their places.

Everything is in the order of keys (stream and index, as in handles), so that a parent is found by
its key.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from ncclscope.capture import layout
from ncclscope.capture.columns import STOP_NS, Events, ReadPlan, apply_states, index_events
from ncclscope.capture.process import Process

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ProcessEvents:
    """One process's events by kind, and what they need to be read."""

    process: Process
    kinds: dict[str, Events]
    impossible: int = 0  # events left out, because their times cannot be

    def __getitem__(self, kind: str) -> Events:
        return self.kinds[kind]

    def stop_ns(self, kind: str) -> Ints:
        """When each event of a kind stopped, NONE for those that did not."""
        return self.kinds[kind].one(STOP_NS)


def events_of(
    process: Process, kinds: tuple[str, ...], plans: Mapping[str, ReadPlan] = MappingProxyType({})
) -> ProcessEvents:
    """The events of the kinds that are asked for. `plans`: what will be read of a kind's events,
    which is best known before.
    """
    wanted = tuple(dict.fromkeys((*kinds, "State")))
    found, impossible = index_events(
        process.slots, process.clock, process.header.nonce, wanted, plans
    )
    states = found["State"]
    if len(states):
        for kind in kinds:
            if kind != "State":
                apply_states(states, found[kind])
    asked = {kind: found[kind] for kind in kinds}
    return ProcessEvents(process, asked, sum(impossible[kind] for kind in kinds if kind != "State"))


def stream_of(keys: Ints) -> Ints:
    """The stream in which each key lies."""
    return keys >> layout.INDEX_BITS
