"""How ranks are connected: what `ingest/nccl_log_topology.py` reads from NCCL's log, and its file
in an import.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from html import escape
from pathlib import Path
from typing import Any

from ncclscope.errors import FormatError
from ncclscope.humanize import printable
from ncclscope.model.schema import NONE
from ncclscope.regular_files import open_binary

FILE = "topology.json"  # of an import
_LARGEST_BYTES = 1 << 28
_MOST_HTML_ROWS = 50
SCOPES = ("inter-node", "intra-node", "")  # "": hosts are not known


@dataclass(frozen=True, slots=True)
class Warning:
    """A warning of NCCL's, how often it came and from which hosts."""

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
    nvlink: bool  # the log shows that it is used
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
    """What the logs say; false when they say nothing."""

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

    def _repr_html_(self) -> str:
        warnings = [(f"{warning.text} ({warning.count:,} times)",) for warning in self.warnings]
        links = [
            (
                link.source_host, link.source, link.destination_host, link.destination,
                link.transport, link.via, " ".join(link.nics),
            )
            for link in self.links
        ]  # fmt: skip
        head = ("host", "rank", "to host", "rank", "transport", "via", "NICs")
        shown = _html_table(("warnings of NCCL",), warnings) + _html_table(head, links)
        return f"<div>{shown or 'no log of NCCL'}</div>"

    def as_json(self) -> dict[str, Any]:
        """The topology as JSON, for programs and for imports."""
        record = asdict(self)
        for comm in record["communicators"]:
            comm["nodes"] = None if comm["nodes"] == NONE else comm["nodes"]
        return record


def _html_table(head: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> str:
    """A table, or nothing where it has no rows; what is beyond a screen is counted."""
    if not rows:
        return ""
    more = len(rows) - _MOST_HTML_ROWS
    cells = [[escape(printable(str(cell))) for cell in row] for row in rows[:_MOST_HTML_ROWS]]
    body = "".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in cells)
    note = f"<small>{more:,} more</small>" if more > 0 else ""
    return f"<table><thead><tr><th>{'</th><th>'.join(head)}</th></tr></thead>{body}</table>{note}"


def read_topology(path: Path) -> Topology:
    """The topology that an import saved."""
    try:
        with open_binary(path) as file:
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


def _row(kind: Any, record: dict[str, Any]) -> Any:
    """A dataclass from a JSON object, its values cast to the fields' types."""
    values = {}
    for field_ in fields(kind):
        cast: Callable[[Any], Any] = _CASTS.get(field_.type, _texts)
        values[field_.name] = cast(record[field_.name])
    return kind(**values)


def _from_json(record: dict[str, Any]) -> Topology:
    communicators = [
        Connected(
            str(c["id"]), int(c["ranks"]), NONE if c["nodes"] is None else int(c["nodes"]),
            tuple(map(str, c["hosts"])), {str(k): int(v) for k, v in c["channels"].items()},
            {int(k): tuple(map(int, v)) for k, v in c["rings"].items()},
            {
                int(k): {int(rank): int(parent) for rank, parent in v.items()}
                for k, v in c["trees"].items()
            },
        )
        for c in record["communicators"]
    ]  # fmt: skip
    kinds = {"warnings": Warning, "links": Link, "nics": Nic, "choices": Choice}
    lists: dict[str, Any] = {
        name: tuple(_row(kind, row) for row in record[name]) for name, kind in kinds.items()
    }
    optional = {"nic_speeds": NicSpeed, "gpu_links": GpuLinks}  # older imports have none
    for name, kind in optional.items():
        lists[name] = tuple(_row(kind, row) for row in record.get(name, ()))
    if any(link.scope not in SCOPES for link in lists["links"]):
        raise ValueError("links are within a node or across")
    return Topology(
        releases=tuple(map(str, record["releases"])),
        networks=tuple(map(str, record["networks"])),
        communicators=tuple(communicators),
        environment={str(k): tuple(map(str, v)) for k, v in record["environment"].items()},
        nvlink_hosts=tuple(map(str, record["nvlink_hosts"])),
        lines=int(record["lines"]),
        notes=tuple(map(str, record["notes"])),
        **lists,
    )
