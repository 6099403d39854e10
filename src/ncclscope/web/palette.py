"""What bars are coloured by: small codes for functions, kinds of events and what a proxy does."""

from ncclscope.capture import layout
from ncclscope.nccl import functions
from ncclscope.nccl.events import STATE

FUNCTIONS = tuple(functions.FUNCTIONS)
OTHER = len(FUNCTIONS)  # a function that is not known here
_KINDS_FROM = 32
SEND, RECV, IDLE, ACTIVE, SLEEP, APPEND, INIT, FINALIZE, DROPPED, DEAD, COARSE = range(64, 75)
_CTRL_STATES = {
    STATE[f"ProxyCtrl{name}"]: code
    for name, code in (
        ("Idle", IDLE), ("Active", ACTIVE), ("Sleep", SLEEP), ("Wakeup", SLEEP),
        ("Append", APPEND), ("AppendEnd", APPEND),
    )
}  # fmt: skip
_CODES = {name.casefold(): code for code, name in enumerate(FUNCTIONS)}


def function_code(name: str) -> int:
    """The colour of a function."""
    plain = name.casefold().removeprefix("nccl")
    return _CODES.get(plain, OTHER)


def kind_code(kind: str) -> int:
    """The colour of a kind of event."""
    return _KINDS_FROM + layout.KINDS[kind]


def control_codes() -> list[int]:
    """The colour of a ProxyCtrl event by its first state."""
    return [_CTRL_STATES.get(state, kind_code("ProxyCtrl")) for state in range(256)]


def names() -> dict[int, str]:
    """What each code is called on the page."""
    named = dict(enumerate(FUNCTIONS)) | {OTHER: "other function"}
    named |= {kind_code(kind): kind for kind, n in layout.KINDS.items() if n < _KINDS_FROM}
    return named | {
        SEND: "send",
        RECV: "receive",
        IDLE: "proxy idle",
        ACTIVE: "proxy active",
        SLEEP: "proxy asleep",
        APPEND: "proxy appends",
        INIT: "init",
        FINALIZE: "finalize",
        DROPPED: "events dropped",
        DEAD: "process gone",
        COARSE: "not indexed yet",
    }
