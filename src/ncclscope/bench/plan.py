"""What to measure: sizes, when to stop, how to call. Pure data, made of the command line once."""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

from ncclscope.bench.datatypes import DATATYPES
from ncclscope.bench.operations import OPERATIONS, Operation, shape_of
from ncclscope.errors import UsageError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d+)([KMGT]?)(?:I?B)?", re.I)
_MOST_SIZES = 1000
MOST_CALLS = 1000  # that are under way before anybody looks again
MOST_HELD = 32  # that are queued while the GPU is held: CUDA's queue must have room for them
_MOST_BATCH_NS = 1e9


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that all ranks must agree on."""

    operations: tuple[str, ...]
    sizes: tuple[int, ...]
    datatypes: tuple[str, ...] = ("float",)
    reductions: tuple[str, ...] = ("sum",)
    roots: tuple[int, ...] = (0,)  # -1: every rank in turn
    places: tuple[str, ...] = ("out-of-place", "in-place")
    calls: int | None = 20
    seconds: float | None = None
    runs: int = 1
    warm_up: int = 5
    grouped: int = 1  # calls between ncclGroupStart and ncclGroupEnd
    graph: bool = False
    blocking: bool = False  # a barrier before, and the end awaited after each call
    held: bool = False  # the GPU begins when a batch of calls is queued
    checks: int = 1
    worlds: tuple[int, ...] = ()  # numbers of ranks; none: all there are

    def as_json(self) -> dict[str, Any]:
        """For ranks and results."""
        return asdict(self)


def plan_of(said: dict[str, Any]) -> Plan:
    """The plan that another process sent."""
    lists = ("operations", "sizes", "datatypes", "reductions", "roots", "places", "worlds")
    known = {field.name for field in fields(Plan)}
    given: dict[str, Any] = {
        name: tuple(value) if name in lists else value
        for name, value in said.items()
        if name in known
    }
    return Plan(**given)


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the table, in one place: what is called over and over."""

    operation: str
    datatype: str
    reduction: str
    root: int
    size_bytes: int  # as asked for
    place: str
    ranks: int

    @property
    def what(self) -> Operation:
        """Its row in the table of operations."""
        return OPERATIONS[self.operation]

    @property
    def in_place(self) -> bool:
        """Whether it sends from where it receives."""
        return self.place == "in-place"


def parse_size(text: str) -> int:
    """Bytes; K, M, G are powers of 1024. 32M -> 33554432"""
    found = _SIZE.fullmatch(text.strip())
    if not found:
        raise UsageError(f"{text} is no size", "Sizes are bytes with K, M or G behind, as in 32M")
    return int(found[1]) * _UNITS[found[2].upper()]


def sizes_between(first: int, last: int, factor: float | None, step: int | None) -> tuple[int, ...]:
    """Sizes from the first to the last, by factor or by step."""
    if first > last:
        message = f"-b {first} is larger than -e {last}"
        raise UsageError(message, "Give the smallest size with -b, the largest with -e")
    if first < 1:
        raise UsageError(f"cannot measure {first} bytes", "Begin with -b 1 or more")
    if (factor is not None and factor <= 1) or (step is not None and step < 1):
        message = "sizes would not grow"
        raise UsageError(message, "Give -f a factor above 1, or -i bytes to add")
    found = [first]
    while len(found) <= _MOST_SIZES:
        size = found[-1] + step if step else int(found[-1] * (factor or 2))
        size = max(size, found[-1] + 1)
        if size > last:
            return tuple(found)
        found.append(size)
    raise UsageError(f"more than {_MOST_SIZES} sizes", "Choose larger steps with -f or -i")


def worlds_up_to(ranks: int) -> tuple[int, ...]:
    """2, 4, 8 … and all ranks."""
    powers = [1 << bit for bit in range(1, 31) if 1 << bit < ranks]
    return (*powers, ranks)


def _possible(operation: str, ranks: int) -> bool:
    return operation != "pairs" or ranks % 2 == 0


def cases(plan: Plan, ranks: int) -> Iterator[Case]:
    """Every line and place, in the order in which they are measured."""
    for name in plan.operations:
        operation = OPERATIONS[name]
        if not _possible(name, ranks):
            continue
        reductions = plan.reductions if operation.reduces else ("none",)
        roots: tuple[int, ...] = (-1,)
        if operation.rooted:
            roots = tuple(range(ranks)) if plan.roots == (-1,) else plan.roots
        for datatype in plan.datatypes:
            for reduction in reductions:
                for root in roots:
                    for size in plan.sizes:
                        if shape_of(operation, size, DATATYPES[datatype].size_bytes, ranks) is None:
                            continue
                        for place in plan.places:
                            if place == "out-of-place" or operation.in_place:
                                yield Case(name, datatype, reduction, root, size, place, ranks)


def left_out(plan: Plan, ranks: int) -> list[str]:
    """What cannot be measured with so many ranks, in words."""
    found = []
    for name in plan.operations:
        operation = OPERATIONS[name]
        if not _possible(name, ranks):
            found.append(f"{operation.title} is left out: {ranks} ranks cannot be paired")
            continue
        for datatype in plan.datatypes:
            element = DATATYPES[datatype].size_bytes
            small = [
                size for size in plan.sizes if shape_of(operation, size, element, ranks) is None
            ]
            if small:
                sizes = ", ".join(str(size) for size in small)
                share = " for each rank" if operation.shared else ""
                found.append(
                    f"{operation.title} leaves out {sizes} bytes: no element of {datatype}{share}"
                )
        if plan.places == ("in-place",) and not operation.in_place:
            found.append(f"{operation.title} is left out: it cannot be in place")
    return found


def check_plan(plan: Plan, ranks: int) -> None:
    """Refuses what no number of ranks, or this one, can do."""
    if plan.held and plan.blocking:
        raise UsageError("calls cannot be held and awaited one by one", "Give --held or --blocking")
    if plan.held and plan.grouped > MOST_HELD:
        message = f"groups of {plan.grouped} calls are too large to be held"
        raise UsageError(message, f"Give -m {MOST_HELD} at most, or leave out --held")
    for root in plan.roots:
        if not -1 <= root < min(plan.worlds or (ranks,)):
            message = f"rank {root} cannot be root: there are {min(plan.worlds or (ranks,))} ranks"
            raise UsageError(message, "Choose another one with -r")
    if not any(True for world in plan.worlds or (ranks,) for _ in cases(plan, world)):
        message = "nothing to measure: " + "; ".join(left_out(plan, ranks))
        raise UsageError(message, "Choose other sizes with -b and -e, or another --place")


def next_batch(plan: Plan, done: int, spent_ns: float, call_ns: float) -> int:
    """How many more calls a run makes before all ranks look again; 0: it is over.

    It ends after `calls` or `seconds`, whichever comes first, and has one call at least. All ranks
    get the same answer: one that made a call more than the others would wait for ever.
    """
    if plan.calls is not None and done >= plan.calls:
        return 0
    most = max(MOST_HELD // plan.grouped, 1) if plan.held else MOST_CALLS
    most = min(most, max(int(_MOST_BATCH_NS / max(call_ns, 1.0)), 1))
    if plan.calls is not None:
        most = min(most, plan.calls - done)
    if plan.seconds is not None:
        left_ns = plan.seconds * 1e9 - spent_ns
        if left_ns <= 0 and done:
            return 0
        most = min(most, max(int(left_ns / max(call_ns, 1.0)), 1))
    return most
