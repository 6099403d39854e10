"""Colour codes of bars: one byte each, with the name and the colour that the page uses.

Functions come first, then kinds of events from 32 on, then what a proxy thread does and the like
from 64 on.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.capture import layout
from ncclscope.model.schema import PHASE_NAMES
from ncclscope.nccl import functions
from ncclscope.nccl.events import STATE
from ncclscope.web.kinds import CALLBACK_COLOURS, Hsl


@dataclass(frozen=True, slots=True)
class Colour:
    """One colour code."""

    name: str
    hsl: Hsl


_FUNCTION_COLOURS: dict[str, Hsl] = {
    "AllReduce": (212, 52, 56),
    "AllGather": (160, 38, 46),
    "ReduceScatter": (184, 44, 42),
    "Broadcast": (268, 36, 60),
    "Reduce": (292, 30, 56),
    "Send": (28, 62, 56),
    "Recv": (44, 58, 50),
    "AlltoAll": (338, 44, 58),
    "Gather": (6, 46, 58),
    "Scatter": (18, 44, 54),
    "SendRecv": (36, 56, 52),
}
_PLAIN: Hsl = (220, 10, 60)  # events that are drawn in a function's colour, and any new kind
_OTHER_COLOURS = (
    Colour("send", (28, 56, 60)),
    Colour("receive", (204, 40, 60)),
    Colour("proxy idle", (220, 8, 74)),
    Colour("proxy active", (140, 26, 58)),
    Colour("proxy asleep", (352, 30, 74)),
    Colour("proxy appends", (38, 48, 60)),
    Colour("init", (140, 40, 42)),
    Colour("finalize", (220, 20, 42)),
    Colour("events dropped", (0, 70, 54)),
    Colour("process gone", (0, 0, 60)),
    Colour("not indexed yet", (220, 8, 70)),
    Colour("step", (226, 22, 66)),
    Colour("range", (196, 18, 64)),
    Colour("data", (12, 60, 60)),
    Colour("forward", (146, 34, 52)),
    Colour("backward", (214, 46, 58)),
    Colour("optimizer", (44, 56, 54)),
    Colour("checkpoint", (300, 26, 58)),
    Colour("evaluation", (174, 30, 50)),
    Colour("host after sync", (350, 52, 60)),
    Colour("host", (8, 58, 64)),
    Colour("launch", (46, 66, 58)),
    Colour("gpu", (140, 30, 52)),
    Colour("start-up", (220, 8, 66)),
)

FUNCTIONS = tuple(functions.FUNCTIONS)
OTHER = len(FUNCTIONS)  # a function that is not in the list
_EVENTS_FROM, _OTHERS_FROM = 32, 64
(
    SEND, RECV, IDLE, ACTIVE, SLEEP, APPEND, INIT, FINALIZE, DROPPED, DEAD, PREVIEW, STEP, RANGE,
    *_rest,
) = range(_OTHERS_FROM, _OTHERS_FROM + len(_OTHER_COLOURS))  # fmt: skip
_PHASES, _EDGES = _rest[: len(PHASE_NAMES)], _rest[len(PHASE_NAMES) :]
_CONTROL_STATES = {
    STATE[f"ProxyCtrl{name}"]: code
    for name, code in (
        ("Idle", IDLE), ("Active", ACTIVE), ("Sleep", SLEEP), ("Wakeup", SLEEP),
        ("Append", APPEND), ("AppendEnd", APPEND),
    )
}  # fmt: skip
_CODES = {name.casefold(): code for code, name in enumerate(FUNCTIONS)}


def function_code(name: str) -> int:
    """The colour code of a function, with or without the prefix `nccl`."""
    return _CODES.get(name.casefold().removeprefix("nccl"), OTHER)


def event_code(kind: str) -> int:
    """The colour code of a kind of event."""
    return _EVENTS_FROM + layout.KINDS[kind]


def phase_codes(names: list[str]) -> npt.NDArray[np.uint8]:
    """The colour codes of phases by their code; the last place, -1, is for none."""
    codes = dict(zip(PHASE_NAMES, _PHASES, strict=True))
    return np.array([*(codes.get(name, RANGE) for name in names), RANGE], np.uint8)


def edge_code(kind: str) -> int:
    """The colour code of an edge of the critical path that is no transfer."""
    names = {_OTHER_COLOURS[code - _OTHERS_FROM].name: code for code in _EDGES}
    return names.get(kind, OTHER)


def control_codes() -> list[int]:
    """The colour codes of ProxyCtrl events by their first state."""
    return [_CONTROL_STATES.get(state, event_code("ProxyCtrl")) for state in range(256)]


def colours() -> dict[int, Colour]:
    """All colours by code."""
    listed = {
        code: Colour(name, _FUNCTION_COLOURS.get(name, _PLAIN))
        for code, name in enumerate(FUNCTIONS)
    }
    listed[OTHER] = Colour("other function", (220, 8, 56))
    listed |= {
        event_code(kind): Colour(kind, CALLBACK_COLOURS.get(kind, _PLAIN))
        for kind, number in layout.KINDS.items()
        if number < _OTHERS_FROM - _EVENTS_FROM
    }
    return listed | dict(enumerate(_OTHER_COLOURS, _OTHERS_FROM))
