"""What a simulated job does and what goes wrong in it: a text of `key = value` lines, or an object.

The simulated NCCL reads the same text for what concerns the machine: links, clocks, release.
docs/simulation.md has every key.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from ncclscope.errors import UsageError
from ncclscope.nccl.datatypes import DATATYPES
from ncclscope.nccl.operation_bytes import bits_per_count

RELEASES = ("2.26", "2.27", "2.28", "2.30", "2.31", "2.32")
FUNCTIONS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "SendRecv")
STAGES = ("launch", "start", "finish", "network")
_FOR_EVER = 1 << 60
_BUNDLED = Path(__file__).parent  # scenarios that come with the package
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True)
class Communicators:
    """Groups of `size` ranks, `stride` apart, that share a name; size 0: one with all ranks."""

    name: str
    size: int = 0
    stride: int = 1

    def groups(self, ranks: int) -> list[tuple[int, ...]]:
        """The ranks of each communicator."""
        size = self.size or ranks
        block = size * self.stride
        starts = [at for at in range(ranks) if at % block < self.stride]
        return [tuple(range(at, at + block, self.stride)) for at in starts]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of every step. `size` is as nccl-tests count it: of AllGather all that is gathered."""

    communicator: str
    function: str
    size: int
    datatype: str = "float32"
    root: int = 0

    def count(self, ranks: int) -> int:
        """Elements as the caller gives them; at least one."""
        bits = bits_per_count(self.function, self.datatype, ranks, in_coll=False)
        return max(self.size * 8 // (bits or 8), 1)


@dataclass(frozen=True, slots=True)
class Late:
    """A rank computes longer before a call, and so comes late."""

    rank: int
    ms: float
    from_step: int = 0
    to_step: int = _FOR_EVER
    call: int = 0


@dataclass(frozen=True, slots=True)
class Never:
    """A rank never makes a call, and hangs elsewhere."""

    rank: int
    step: int
    call: int = 0


@dataclass(frozen=True, slots=True)
class Wrong:
    """A rank makes another call than the others: what is given is different."""

    rank: int
    step: int
    call: int = 0
    function: str = ""
    size: int = 0
    datatype: str = ""
    root: int = -1


@dataclass(frozen=True, slots=True)
class Dies:
    """A process kills itself before a call, or, with `after` 1, after it, before the GPU begins."""

    rank: int
    step: int
    call: int = 0
    after: int = 0


@dataclass(frozen=True, slots=True)
class Stuck:
    """A rank gets no further with a call: it does not launch, start or finish it while others do,
    or what it sends stays in the network, so that all ranks are in it and nothing moves.
    """

    rank: int
    step: int
    call: int = 0
    at: str = "start"


@dataclass(frozen=True, slots=True)
class NeverJoins:
    """A rank hangs while a communicator is made, when the other ranks have met there."""

    rank: int
    communicator: str


@dataclass(frozen=True, slots=True)
class Heavy:
    """A rank sends `factor` times as much as the others with a SendRecv."""

    rank: int
    factor: int
    call: int = 0


@dataclass(frozen=True, slots=True)
class SlowLink:
    """Latency and bandwidth between two ranks or two hosts are `factor` times worse."""

    ranks: tuple[int, ...] = ()
    hosts: tuple[int, ...] = ()
    factor: float = 10


@dataclass(frozen=True, slots=True)
class BandwidthDrop:
    """From a time after the first operation on, all links have 1 / `factor` of it."""

    at_ms: float
    factor: float = 4


@dataclass(frozen=True, slots=True)
class HostClock:
    """CLOCK_MONOTONIC of a posed host against the machine's."""

    host: int
    offset_ms: float = 0
    drift_ppm: float = 0


@dataclass(frozen=True, slots=True)
class GpuClock:
    """The timer of a rank's GPU against Unix time."""

    rank: int
    offset_ms: float = 0
    drift_ppm: float = 0


@dataclass(frozen=True, slots=True)
class Scenario:
    """A job of `steps`: in each, ranks compute, make every call in order, and wait for the end."""

    name: str = "scenario"
    release: str = "2.28"
    ranks: int = 4
    ranks_per_host: int = 0  # 0: all on one
    channels: int = 2
    latency_us: float = 10
    bandwidth_gb_s: float = 2
    steps: int = 20
    compute_ms: float = 2
    give_up_s: float = 5  # a job that does not go on is killed after so long; 0: never
    communicators: tuple[Communicators, ...] = (Communicators("world"),)
    calls: tuple[Call, ...] = (Call("world", "AllReduce", 1 << 20),)
    late: tuple[Late, ...] = ()
    never: tuple[Never, ...] = ()
    wrong: tuple[Wrong, ...] = ()
    dies: tuple[Dies, ...] = ()
    stuck: tuple[Stuck, ...] = ()
    never_joins: tuple[NeverJoins, ...] = ()
    heavy: tuple[Heavy, ...] = ()
    slow_links: tuple[SlowLink, ...] = ()
    bandwidth_drops: tuple[BandwidthDrop, ...] = ()
    host_clocks: tuple[HostClock, ...] = ()
    gpu_clocks: tuple[GpuClock, ...] = ()

    @property
    def hosts(self) -> int:
        """How many."""
        return -(-self.ranks // self.ranks_per_host) if self.ranks_per_host else 1

    def host_of(self, rank: int) -> int:
        """The posed host of a rank."""
        return rank // self.ranks_per_host if self.ranks_per_host else 0

    @property
    def made_communicators(self) -> tuple[Communicators, ...]:
        """Those that a job makes: first one of all ranks, then the others, parts of it."""
        world = [one for one in self.communicators if one.size in (0, self.ranks)]
        others = (one for one in self.communicators if one not in world[:1])
        return (world[0] if world else Communicators("world"), *others)

    def late_ms(self, rank: int, step: int, call: int) -> float:
        """How much longer a rank computes before a call."""
        mine = (one for one in self.late if one.rank == rank and one.call == call)
        return sum(one.ms for one in mine if one.from_step <= step <= one.to_step)

    def sends_times(self, rank: int, call: int) -> int:
        """How many times the call's size a rank sends."""
        mine = (one.factor for one in self.heavy if (one.rank, one.call) == (rank, call))
        return next(mine, 1)

    def call_of(self, rank: int, step: int, call: int) -> Call:
        """What a rank really calls."""
        right = self.calls[call]
        for wrong in self.wrong:
            if (wrong.rank, wrong.step, wrong.call) == (rank, step, call):
                return Call(
                    right.communicator,
                    wrong.function or right.function,
                    wrong.size or right.size,
                    wrong.datatype or right.datatype,
                    right.root if wrong.root < 0 else wrong.root,
                )
        return right


# ---- text: every kind of line is one of these, its words in any order but the first ----
_LISTS: dict[str, tuple[str, type]] = {
    "communicator": ("communicators", Communicators),
    "call": ("calls", Call),
    "late": ("late", Late),
    "never": ("never", Never),
    "wrong": ("wrong", Wrong),
    "dies": ("dies", Dies),
    "stuck": ("stuck", Stuck),
    "never_joins": ("never_joins", NeverJoins),
    "heavy": ("heavy", Heavy),
    "slow_link": ("slow_links", SlowLink),
    "bandwidth_drop": ("bandwidth_drops", BandwidthDrop),
    "host_clock": ("host_clocks", HostClock),
    "gpu_clock": ("gpu_clocks", GpuClock),
}
_T = TypeVar("_T")


def bytes_of(text: str) -> int:
    """64K, 1M, 12345: an amount with a power of 1024."""
    found = re.fullmatch(r"(\d+)([KMG]?)", text.upper())
    if not found:
        raise ValueError(f"{text} is not an amount of bytes")
    return int(found[1]) * _UNITS[found[2]]


def _value(name: str, kind: Any, text: str) -> Any:
    if name == "size":
        return bytes_of(text)
    convert: Callable[[str], Any] = {int: int, float: float}.get(kind, str)
    try:
        if kind in ("tuple[int, ...]", tuple[int, ...]):
            return tuple(int(part) for part in text.split(","))
        return convert(text)
    except ValueError:
        raise ValueError(f"{name} is a number, and {text or 'nothing'} is none") from None


def _made(kind: type[_T], text: str) -> _T:
    """An object of a line's words: `name=value`, or values in the order of its fields."""
    known = {one.name: one.type for one in fields(kind)}  # type: ignore[arg-type]
    given: dict[str, Any] = {}
    for place, word in enumerate(text.split()):
        name, equals, value = word.partition("=")
        if not equals:
            name, value = list(known)[place] if place < len(known) else word, word
        if name not in known:
            raise ValueError(f"{name} is none of {', '.join(known)}")
        given[name] = _value(name, known[name], value)
    needed = [one.name for one in fields(kind) if one.default is MISSING]  # type: ignore[arg-type]
    missing = [name for name in needed if name not in given]
    if missing:
        raise ValueError(f"{', '.join(missing)} is missing")
    return kind(**given)


def _problems(s: Scenario) -> Iterator[str]:
    """Why a scenario cannot be run."""
    names = [one.name for one in s.communicators]
    if s.release not in RELEASES:
        yield f"release is one of {', '.join(RELEASES)}, not {s.release}"
    if s.ranks < 1 or s.steps < 0 or s.ranks_per_host < 0 or s.channels < 1:
        yield "ranks and channels are at least 1"
    if s.bandwidth_gb_s <= 0:
        yield "bandwidth_gb_s is above 0"
    if len(set(names)) < len(names):
        yield "two communicators have the same name"
    for comm in s.communicators:
        if comm.size < 0 or comm.stride < 1 or s.ranks % ((comm.size or s.ranks) * comm.stride):
            yield f"{s.ranks} ranks do not divide into communicators {comm.name}"
    for call in s.calls:
        if call.communicator not in names:
            yield f"there is no communicator {call.communicator}"
    made: tuple[Call | Wrong, ...] = (*s.calls, *s.wrong)
    for one in made:
        if one.function not in FUNCTIONS and (one.function or isinstance(one, Call)):
            yield f"function is one of {', '.join(FUNCTIONS)}, not {one.function}"
        if one.datatype not in DATATYPES and (one.datatype or isinstance(one, Call)):
            yield f"there is no datatype {one.datatype}"
    faults: tuple[Late | Never | Wrong | Dies | Stuck | Heavy, ...] = (
        *s.late, *s.never, *s.wrong, *s.dies, *s.stuck, *s.heavy,
    )  # fmt: skip
    for fault in faults:
        if not 0 <= fault.rank < s.ranks or not 0 <= fault.call < len(s.calls):
            yield f"there is no rank {fault.rank} or no call {fault.call}"
    for stuck in s.stuck:
        if stuck.at not in STAGES:
            yield f"at is one of {', '.join(STAGES)}, not {stuck.at}"
    made_names = [one.name for one in s.made_communicators]
    for absent in s.never_joins:
        if absent.communicator not in made_names or not 0 <= absent.rank < s.ranks:
            yield f"there is no rank {absent.rank} or no communicator {absent.communicator}"
        if s.release == "2.26":
            yield "never_joins needs release 2.27 or later: names of communicators"
    for heavy in s.heavy:
        if heavy.factor < 1 or s.calls[heavy.call].function != "SendRecv":
            yield "heavy has a factor and is of a SendRecv"
    for link in s.slow_links:
        if sorted((len(link.ranks), len(link.hosts))) != [0, 2]:
            yield "slow_link has ranks=A,B or hosts=A,B"


def checked(scenario: Scenario) -> Scenario:
    """The scenario, if it can be run."""
    for problem in _problems(scenario):
        raise ValueError(problem)
    return scenario


def parse_scenario(text: str, origin: str = "scenario") -> Scenario:
    """Reads a scenario; a UsageError names the line."""
    given: dict[str, Any] = {}
    plain = {one.name: one.type for one in fields(Scenario)}
    number = 0
    try:
        for line in text.splitlines():
            number += 1
            key, equals, value = (part.strip() for part in line.partition("#")[0].partition("="))
            if not key and not equals:
                continue
            if key in _LISTS:
                name, kind = _LISTS[key]
                given[name] = (*given.get(name, ()), _made(kind, value))
            elif key in plain and key not in {name for name, _ in _LISTS.values()}:
                given[key] = _value(key, plain[key], value)
            else:
                raise ValueError(f"there is no key {key or line.strip()}")
        number = 0
        return checked(Scenario(**given))
    except (ValueError, TypeError) as error:
        place = f"{origin}:{number}" if number else origin
        hint = "docs/simulation.md has every key"
        raise UsageError(f"cannot read the scenario {place}: {error}", hint) from None


def read_scenario(path: Path) -> Scenario:
    """Reads a scenario's file; a bare name may be that of one that comes with the package."""
    if path.name == str(path) and not path.exists() and (_BUNDLED / path).is_file():
        path = _BUNDLED / path
    hint = "A scenario is a text file; docs/simulation.md says how to write one"
    try:
        text = path.read_text()
    except OSError as error:
        raise UsageError(f"cannot read the scenario {path}: {error.strerror}", hint) from None
    except UnicodeDecodeError:
        raise UsageError(f"cannot read the scenario {path}: it is no text", hint) from None
    return parse_scenario(text, str(path))


def _words(one: Any) -> str:
    """A line's words, without what is as it would be anyway."""
    said = []
    for part in fields(one):
        value = getattr(one, part.name)
        if value != part.default:
            shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
            said.append(f"{part.name}={shown}")
    return " ".join(said)


def scenario_text(scenario: Scenario) -> str:
    """The scenario as text; parse_scenario gives the same one back."""
    lists = {name: key for key, (name, _) in _LISTS.items()}
    lines = []
    for one in fields(scenario):
        value = getattr(scenario, one.name)
        if one.name in lists:
            lines += [f"{lists[one.name]} = {_words(part)}" for part in value]
        elif value != one.default:
            lines.append(f"{one.name} = {value}")
    return "\n".join(lines) + "\n"
