"""Events of one process by kind, with stops that other threads reported put into their events.

Events are in the order of their keys (stream and index, as in handles), so that a parent is found
by its key.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ncclscope.arrays.types import Ints
from ncclscope.capture import layout
from ncclscope.capture.columns import STOP_NS, Events, ReadPlan, apply_states, index_events
from ncclscope.capture.process import Process


@dataclass(frozen=True, slots=True)
class ProcessEvents:
    """One process's events by kind."""

    process: Process
    kinds: dict[str, Events]
    impossible: int = 0  # events left out: the process cannot have lived to see their times

    def __getitem__(self, kind: str) -> Events:
        return self.kinds[kind]

    def stop_ns(self, kind: str) -> Ints:
        """When each event of a kind stopped, NONE for those that did not."""
        return self.kinds[kind].one(STOP_NS)


def events_of(
    process: Process, kinds: tuple[str, ...], plans: Mapping[str, ReadPlan] = MappingProxyType({})
) -> ProcessEvents:
    """The events of these kinds. `plans`: columns that will be read of a kind's events; they are
    read in the pass that finds the events.
    """
    wanted = tuple(dict.fromkeys((*kinds, "State")))
    events, impossible = index_events(
        process.slots, process.clock, process.header.nonce, wanted, plans
    )
    states = events["State"]
    if len(states):
        for kind in kinds:
            if kind != "State":
                apply_states(states, events[kind])
    by_kind = {kind: events[kind] for kind in kinds}
    left_out = sum(impossible[kind] for kind in kinds if kind != "State")
    return ProcessEvents(process, by_kind, left_out)


def stream_of(keys: Ints) -> Ints:
    """The stream in which each key lies."""
    return keys >> layout.INDEX_BITS
