"""How ranks are connected, as NCCL's log tells it: what `ingest/log_facts.py` finds, in a form that
can be kept.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ncclscope.errors import FormatError
from ncclscope.model.schema import NONE

FILE = "topology.json"  # of an import
_LARGEST_BYTES = 1 << 28
SCOPES = ("inter-node", "intra-node", "")  # "": hosts are not known


@dataclass(frozen=True, slots=True)
class Warning:
    """A sentence of NCCL's, how often it came and from which hosts."""

    text: str
    count: int
    hosts: tuple[str, ...]
    notice: bool  # logged as INFO


@dataclass(frozen=True, slots=True)
class Nic:
    """A network device as NCCL numbers it on a host."""

    host: str
    network: str
    index: int
    name: str


@dataclass(frozen=True, slots=True)
class NicSpeed:
    """What a network device of a host carries."""

    host: str
    name: str
    mbit_s: int


@dataclass(frozen=True, slots=True)
class GpuLinks:
    """What all links of a GPU to others of its host carry together."""

    host: str
    total_mb_s: int


@dataclass(frozen=True, slots=True)
class Link:
    """A connection from one rank of a communicator to another."""

    communicator: str
    source: int
    destination: int
    source_host: str
    destination_host: str
    transport: str  # P2P, SHM, NET
    via: str  # as NCCL writes it
    scope: str  # of SCOPES
    nvlink: bool  # the log shows it
    nics: tuple[str, ...]
    gpu_direct: bool
    channels: int


@dataclass(frozen=True, slots=True)
class Connected:
    """A communicator as the log shows it."""

    id: str
    ranks: int
    nodes: int  # NONE where no line tells
    hosts: tuple[str, ...]
    channels: dict[str, int]  # coll, p2p …
    rings: dict[int, tuple[int, ...]]  # by channel, the order of ranks
    trees: dict[int, dict[int, int]]  # by channel, each rank's parent; NONE for the root


@dataclass(frozen=True, slots=True)
class Choice:
    """Sizes for which NCCL chose an algorithm and protocol."""

    function: str
    algorithm: str
    protocol: str
    count: int
    from_bytes: int
    to_bytes: int


@dataclass(frozen=True, slots=True)
class Topology:
    """Everything that the logs say. Empty ones are false."""

    releases: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    warnings: tuple[Warning, ...] = ()
    communicators: tuple[Connected, ...] = ()
    links: tuple[Link, ...] = ()
    nics: tuple[Nic, ...] = ()
    choices: tuple[Choice, ...] = ()
    environment: dict[str, tuple[str, ...]] = field(default_factory=dict)
    nvlink_hosts: tuple[str, ...] = ()
    nic_speeds: tuple[NicSpeed, ...] = ()
    gpu_links: tuple[GpuLinks, ...] = ()
    lines: int = 0  # of NCCL's
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.lines > 0

    def as_json(self) -> dict[str, Any]:
        """For programs, and for keeping."""
        record = asdict(self)
        for one in record["communicators"]:
            one["nodes"] = None if one["nodes"] == NONE else one["nodes"]
        return record


def kept_topology(path: Path) -> Topology:
    """What an import kept."""
    try:
        with path.open("rb") as file:
            record = json.loads(file.read(_LARGEST_BYTES))
        return _from_json(record)
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ):
        raise FormatError(f"cannot read {path}: it is damaged", "Import it again") from None


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(map(str, values))


_CASTS: dict[Any, Callable[[Any], Any]] = {str: str, int: int, bool: bool}


def _made(kind: Any, record: dict[str, Any]) -> Any:
    """A record with values of the types that it has to have."""
    values = {}
    for one in fields(kind):
        cast: Callable[[Any], Any] = _CASTS.get(one.type, _texts)
        values[one.name] = cast(record[one.name])
    return kind(**values)


def _from_json(record: dict[str, Any]) -> Topology:
    communicators = [
        Connected(
            str(one["id"]), int(one["ranks"]), NONE if one["nodes"] is None else int(one["nodes"]),
            tuple(map(str, one["hosts"])), {str(k): int(v) for k, v in one["channels"].items()},
            {int(k): tuple(map(int, v)) for k, v in one["rings"].items()},
            {
                int(k): {int(rank): int(parent) for rank, parent in v.items()}
                for k, v in one["trees"].items()
            },
        )
        for one in record["communicators"]
    ]  # fmt: skip
    kinds = {"warnings": Warning, "links": Link, "nics": Nic, "choices": Choice}
    made: dict[str, Any] = {
        name: tuple(_made(kind, one) for one in record[name]) for name, kind in kinds.items()
    }
    later = {"nic_speeds": NicSpeed, "gpu_links": GpuLinks}  # what older imports do not have
    for name, kind in later.items():
        made[name] = tuple(_made(kind, one) for one in record.get(name, ()))
    if any(link.scope not in SCOPES for link in made["links"]):
        raise ValueError("links are within a node or across")
    return Topology(
        releases=tuple(map(str, record["releases"])),
        networks=tuple(map(str, record["networks"])),
        communicators=tuple(communicators),
        environment={str(k): tuple(map(str, v)) for k, v in record["environment"].items()},
        nvlink_hosts=tuple(map(str, record["nvlink_hosts"])),
        lines=int(record["lines"]),
        notes=tuple(map(str, record["notes"])),
        **made,
    )
