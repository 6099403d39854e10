"""What to measure: operations and sizes, how to call them, how many in a batch, when to stop."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

from ncclscope.bench.datatypes import DATATYPES, element_bytes
from ncclscope.bench.operations import OPERATIONS, BenchOperation, Shape, shape_of
from ncclscope.byte_sizes import size_in_bytes
from ncclscope.errors import UsageError

_MOST_SIZES = 1000
MOST_CALLS = 1000  # of a batch
MOST_HELD = 32  # of a batch that is queued while the GPU is held: CUDA's queue is limited
_MOST_BATCH_NS = 1e9


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that ranks must agree on."""

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
    worlds: tuple[int, ...] = ()  # numbers of ranks; none: all ranks
    killed: bool = False  # ranks end by SIGKILL after the last call, to see what a profiler saves

    def as_json(self) -> dict[str, Any]:
        """The plan as a JSON object, for ranks and for results."""
        return asdict(self)


def plan_from_json(content: dict[str, Any]) -> Plan:
    """The plan that another process sent."""
    lists = ("operations", "sizes", "datatypes", "reductions", "roots", "places", "worlds")
    names = {field.name for field in fields(Plan)}
    values: dict[str, Any] = {
        name: tuple(value) if name in lists else value
        for name, value in content.items()
        if name in names
    }
    return Plan(**values)


@dataclass(frozen=True, slots=True)
class Case:
    """What is called over and over: one line of the table, in place or out of place."""

    operation: str
    datatype: str
    reduction: str
    root: int
    size_bytes: int  # that the user asked for
    place: str
    ranks: int

    @property
    def spec(self) -> BenchOperation:
        """Its row in the table of operations."""
        return OPERATIONS[self.operation]

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return element_bytes(DATATYPES[self.datatype])

    @property
    def shape(self) -> Shape:
        """Its elements on each rank."""
        shape = shape_of(self.spec, self.size_bytes, self.element_bytes, self.ranks)
        assert shape is not None, "cases() leaves out what has no element"
        return shape

    @property
    def in_place(self) -> bool:
        """Whether it sends from the buffer that it receives into."""
        return self.place == "in-place"


def parse_size(text: str) -> int:
    """Bytes; K, M and G are powers of 1024. 32M -> 33554432"""
    size_bytes = size_in_bytes(text.strip(), whole=True)
    if size_bytes is None:
        raise UsageError(f"{text} is no size", "Sizes are bytes with K, M or G behind, as in 32M")
    return size_bytes


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
    sizes = [first]
    while len(sizes) <= _MOST_SIZES:
        size = sizes[-1] + step if step else int(sizes[-1] * (factor or 2))
        size = max(size, sizes[-1] + 1)
        if size > last:
            return tuple(sizes)
        sizes.append(size)
    raise UsageError(f"more than {_MOST_SIZES} sizes", "Choose larger steps with -f or -i")


def worlds_up_to(ranks: int) -> tuple[int, ...]:
    """Numbers of ranks: 2, 4, 8 … and all."""
    powers = [1 << bit for bit in range(1, 31) if 1 << bit < ranks]
    return (*powers, ranks)


def _possible(operation: str, ranks: int) -> bool:
    return operation != "pairs" or ranks % 2 == 0


def cases(plan: Plan, ranks: int) -> Iterator[Case]:
    """All cases, in the order in which they are measured."""
    for name in plan.operations:
        operation = OPERATIONS[name]
        if not _possible(name, ranks):
            continue
        reductions = plan.reductions if operation.reduces else ("none",)
        roots: tuple[int, ...] = (-1,)
        if operation.facts.has_root:
            roots = tuple(range(ranks)) if plan.roots == (-1,) else plan.roots
        for datatype in plan.datatypes:
            for reduction in reductions:
                for root in roots:
                    for size in plan.sizes:
                        element = element_bytes(DATATYPES[datatype])
                        if shape_of(operation, size, element, ranks) is None:
                            continue
                        for place in plan.places:
                            if place == "out-of-place" or operation.in_place:
                                yield Case(name, datatype, reduction, root, size, place, ranks)


def omission_notes(plan: Plan, ranks: int) -> list[str]:
    """Notes about what cannot be measured with that number of ranks."""
    notes = []
    for name in plan.operations:
        operation = OPERATIONS[name]
        if not _possible(name, ranks):
            notes.append(f"{operation.title} is left out: {ranks} ranks cannot be paired")
            continue
        for datatype in plan.datatypes:
            element = element_bytes(DATATYPES[datatype])
            small = [
                size for size in plan.sizes if shape_of(operation, size, element, ranks) is None
            ]
            if small:
                sizes = ", ".join(str(size) for size in small)
                share = " for each rank" if operation.shared else ""
                notes.append(
                    f"{operation.title} leaves out {sizes} bytes: no element of {datatype}{share}"
                )
        if plan.places == ("in-place",) and not operation.in_place:
            notes.append(f"{operation.title} is left out: it cannot be in place")
    return notes


def check_plan(plan: Plan, ranks: int) -> None:
    """Raises if a plan contradicts itself, or cannot be carried out with that number of ranks."""
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
        message = "nothing to measure: " + "; ".join(omission_notes(plan, ranks))
        raise UsageError(message, "Choose other sizes with -b and -e, or another --place")


def next_batch(plan: Plan, done: int, spent_ns: float, call_ns: float) -> int:
    """Number of calls in a run's next batch; 0 if the run is over.

    A run ends after `calls` or `seconds`, whichever comes first, and has at least one call. All
    ranks get the same number: a rank that made one call more than the others would wait for ever.
    """
    if plan.calls is not None and done >= plan.calls:
        return 0
    most = max(MOST_HELD // plan.grouped, 1) if plan.held else MOST_CALLS
    most = min(most, max(int(_MOST_BATCH_NS / max(call_ns, 1.0)), 1))
    if plan.calls is not None:
        most = min(most, plan.calls - done)
    if plan.seconds is not None:
        remaining_ns = plan.seconds * 1e9 - spent_ns
        if remaining_ns <= 0 and done:
            return 0
        most = min(most, max(int(remaining_ns / max(call_ns, 1.0)), 1))
    return most
