"""How ranks are connected, by NCCL's log: tables of a report, warnings first."""

from collections import Counter
from collections.abc import Iterator

from ncclscope.humanize import NOTHING, plural
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE
from ncclscope.model.topology import SCOPES, Connected, Link, Topology
from ncclscope.report.tables import Cell, Column, Table
from ncclscope.report.units import size

_MOST_HOSTS, _LONGEST_TEXT = 3, 200


def warning_lines(topology: Topology | None, most: int = 3) -> list[str]:
    """The warnings that a report opens with."""
    serious = [warning for warning in topology.warnings if not warning.notice] if topology else []
    lines = [
        f"NCCL warned{'' if warning.count == 1 else f' {warning.count:,} times'}: {warning.text} "
        f"({_hosts(warning.hosts)})"
        for warning in serious[:most]
    ]
    if len(serious) > most:
        lines.append(f"{plural(len(serious) - most, 'more warning')} of NCCL's: see its log below")
    return lines


def topology_tables(topology: Topology | None, model: Model, most: int) -> list[Table]:
    """Tables of what the log says, the most urgent first; none without a log. Communicators have
    the same names as in the rest of the report.
    """
    if not topology:
        return []
    ids = model.tables["communicators"]["id"].tolist()
    names = {
        f"{number % (1 << 64):#x}": model.communicator_names[row] for row, number in enumerate(ids)
    }
    tables = (
        _warnings(topology, most),
        _links(topology, names, most),
        _communicators(topology, names, most),
        _choices(topology, most),
    )
    shown = [table for table in tables if table.rows]
    facts = _facts(topology)
    if shown:
        last = shown[-1]
        shown[-1] = Table(last.title, last.columns, last.rows, (*last.notes, *facts))
    elif facts:
        shown = [Table("NCCL's log", (Column("", right=False),), tuple((f,) for f in facts))]
    return shown


def _hosts(hosts: tuple[str, ...]) -> str:
    more = f" and {len(hosts) - _MOST_HOSTS} more" if len(hosts) > _MOST_HOSTS else ""
    return ", ".join(hosts[:_MOST_HOSTS]) + more


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]} …"


def _left(count: int, most: int, word: str) -> tuple[str, ...]:
    return (f"{plural(count - most, f'more {word}')} not shown",) if count > most else ()


def _warnings(topology: Topology, most: int) -> Table:
    rows = tuple(
        (
            f"{line.count:,}",
            "info" if line.notice else "WARN",
            _hosts(line.hosts),
            _short(line.text),
        )
        for line in topology.warnings[:most]
    )
    columns = (
        Column("times"), Column("", right=False), Column("hosts", right=False),
        Column("text", right=False),
    )  # fmt: skip
    notes = _left(len(topology.warnings), most, "line")
    return Table("NCCL's log: warnings", columns, rows, notes)


def _transport(link: Link) -> str:
    return f"{link.transport} by NVLink" if link.nvlink else link.transport


def _links(topology: Topology, names: dict[str, str], most: int) -> Table:
    """Link by link where they are few, else by kind."""
    if len(topology.links) <= most:
        return _single_links(topology, names)
    kinds: dict[tuple[str, str, str, str], list[Link]] = {}
    for link in topology.links:
        kind = (link.scope, _transport(link), _way(link), ", ".join(link.nics))
        kinds.setdefault(kind, []).append(link)
    ordered = sorted(kinds.items(), key=lambda item: (SCOPES.index(item[0][0]), item[0]))
    rows = tuple(
        (
            scope or NOTHING, transport, way or NOTHING, nics or NOTHING, f"{len(links):,}",
            _range([link.channels for link in links]),
        )
        for (scope, transport, way, nics), links in ordered[:most]
    )  # fmt: skip
    columns = (
        Column("", right=False), Column("transport", right=False), Column("how", right=False),
        Column("NIC", right=False), Column("links"), Column("channels"),
    )  # fmt: skip
    return Table("NCCL's log: links", columns, rows, _left(len(kinds), most, "kind"))


def _single_links(topology: Topology, names: dict[str, str]) -> Table:
    several = len({link.communicator for link in topology.links}) > 1
    ordered = sorted(
        topology.links,
        key=lambda link: (
            SCOPES.index(link.scope), link.communicator, link.source, link.destination,
        ),
    )  # fmt: skip
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            *((names.get(link.communicator, link.communicator) or NOTHING,) if several else ()),
            str(link.source), str(link.destination), _place(link), link.scope or NOTHING,
            _transport(link), _way(link) or NOTHING, ", ".join(link.nics) or NOTHING,
            f"{link.channels:,}",
        )
        for link in ordered
    )  # fmt: skip
    columns = (
        *((Column("communicator", right=False, drop=3),) if several else ()),
        Column("from"), Column("to"), Column("hosts", right=False, drop=2),
        Column("", right=False), Column("transport", right=False), Column("how", right=False),
        Column("NIC", right=False), Column("channels", drop=1),
    )  # fmt: skip
    return Table("NCCL's log: links, rank to rank", columns, rows)


def _place(link: Link) -> str:
    if link.source_host == link.destination_host:
        return link.source_host or NOTHING
    return f"{link.source_host or '?'} → {link.destination_host or '?'}"


def _way(link: Link) -> str:
    """What NCCL's log says about a link besides transport and device."""
    words = [word for word in link.via.split("/")[1:] if not word[:1].isdigit()]
    if link.transport.startswith("NET/"):
        words = words[1:]
    proxied = [word for word in link.via.split("/") if word[:1].isdigit() and "(" in word]
    return " ".join([*words, *(f"by rank {word.split('(')[1].rstrip(')')}" for word in proxied)])


def _range(numbers: list[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low}–{high}"


def _communicators(topology: Topology, names: dict[str, str], most: int) -> Table:
    rows = tuple(
        (
            names.get(comm.id, comm.id), str(comm.ranks),
            NOTHING if comm.nodes == NONE else str(comm.nodes),
            ", ".join(f"{count} {kind}" for kind, count in comm.channels.items()) or NOTHING,
            _rings(comm), _roots(comm),
        )
        for comm in topology.communicators[:most]
    )  # fmt: skip
    columns = (
        Column("communicator", right=False), Column("ranks"), Column("nodes"),
        Column("channels", right=False, drop=3), Column("rings", right=False, drop=1),
        Column("tree roots", right=False, drop=2),
    )  # fmt: skip
    notes = _left(len(topology.communicators), most, "communicator")
    return Table("NCCL's log: communicators", columns, rows, notes)


def _rings(communicator: Connected) -> str:
    """The commonest order of ranks, and how many others there are."""
    if not communicator.rings:
        return NOTHING
    orders = Counter(communicator.rings.values())
    order, count = orders.most_common(1)[0]
    shown = " ".join(map(str, order[:16])) + (" …" if len(order) > 16 else "")
    rest = f", {plural(len(orders) - 1, 'other order')}" if len(orders) > 1 else ""
    return f"{shown} ({count} of {plural(len(communicator.rings), 'channel')}{rest})"


def _roots(communicator: Connected) -> str:
    """Ranks without a parent in some tree."""
    trees = communicator.trees.values()
    roots = {rank for tree in trees for rank, parent in tree.items() if parent == NONE}
    return ", ".join(map(str, sorted(roots)[:8])) or NOTHING


def _choices(topology: Topology, most: int) -> Table:
    rows = tuple(
        (
            choice.function or NOTHING, size(choice.from_bytes), size(choice.to_bytes),
            choice.algorithm, choice.protocol, f"{choice.count:,}",
        )
        for choice in sorted(topology.choices, key=lambda c: (c.function, c.from_bytes))[:most]
    )  # fmt: skip
    columns = (
        Column("function", right=False), Column("from"), Column("to"),
        Column("algorithm", right=False), Column("protocol", right=False), Column("times"),
    )  # fmt: skip
    notes = _left(len(topology.choices), most, "choice")
    return Table("NCCL's log: algorithms chosen by size", columns, rows, notes)


def _facts(topology: Topology) -> Iterator[str]:
    """Releases, networks, NICs, variables."""
    words = []
    if topology.releases:
        words.append(f"NCCL {', '.join(topology.releases)}")
    if topology.networks:
        words.append(f"network {', '.join(topology.networks)}")
    if words:
        yield ", ".join(words)
    devices: dict[tuple[str, ...], list[str]] = {}
    by_host: dict[str, list[str]] = {}
    for nic in topology.nics:
        by_host.setdefault(nic.host, []).append(f"{nic.name} ({nic.network})")
    for host, names in by_host.items():
        devices.setdefault(tuple(names), []).append(host)
    for listed, hosts in list(devices.items())[:_MOST_HOSTS]:
        yield f"NICs of {_hosts(tuple(hosts))}: {', '.join(listed)}"
    if topology.environment:
        listed_variables = [
            f"{name}={'|'.join(values)}" for name, values in topology.environment.items()
        ]
        yield f"set by the environment: {', '.join(listed_variables)}"
    yield from topology.notes
