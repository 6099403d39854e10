"""Ranks by the waiting that they cause, and traffic from rank to rank."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import duckdb

from ncclscope.analysis.sum_tables import all_rows
from ncclscope.analysis.waiting.origins import RankWaiting, WaitingAccount


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank: what it did, how long it waited in collectives, and who waited for it."""

    rank: int | None  # global
    host: str
    operations: int
    bytes: int
    wait_ns: int | None  # for others; None where it is not known for any operation
    wait_share: float | None
    waiting: RankWaiting | None  # whose waiting it caused; None where it cannot be seen


@dataclass(frozen=True, slots=True)
class ArrivalCoverage:
    """How well last arrivers are known."""

    compared: int  # instances with times of all their ranks on one clock
    certain: int  # of these, with a last arriver beyond the clocks' error
    error_ns: int | None  # the largest


@dataclass(frozen=True, slots=True)
class TrafficRow:
    """Sends from one rank to another. None: a rank that is not on record."""

    source: int | None
    destination: int | None
    messages: int
    bytes: int
    crosses_nodes: bool | None


def rank_rows(connection: duckdb.DuckDBPyConnection, hosts: list[str]) -> tuple[RankRow, ...]:
    """All ranks, without their waiting."""
    table = []
    for rank, node, operations, size, wait, waited_of in all_rows(connection, "rank_sums"):
        share = wait / waited_of if wait is not None and waited_of else None
        host = hosts[node] if node is not None else ""
        table.append(RankRow(rank, host, operations, size or 0, wait, share, None))
    return tuple(table)


def with_waiting(table: Sequence[RankRow], account: WaitingAccount | None) -> tuple[RankRow, ...]:
    """The ranks with their parts of the account, those on which most waiting began first."""
    waiting = {row.rank: row for row in account.ranks} if account else {}
    # Of a rank that moved to another node the account is about the last attempt.
    own = (waiting.get(row.rank) if row.rank is not None else None for row in table)
    joined = [replace(row, waiting=part) for row, part in zip(table, own, strict=True)]
    return tuple(sorted(joined, key=_by_origin))


def _by_origin(row: RankRow) -> tuple[int, int, int]:
    own, caused = (row.waiting.origin_ns, row.waiting.caused_ns) if row.waiting else (0, 0)
    return -own, -caused, -1 if row.rank is None else row.rank


def arrivals(connection: duckdb.DuckDBPyConnection) -> ArrivalCoverage:
    """How well last arrivers are known, over all communicators."""
    table = all_rows(connection, "arrival_coverage")
    errors = [row[4] for row in table if row[4] is not None]
    return ArrivalCoverage(
        sum(row[1] for row in table), sum(row[2] for row in table), max(errors, default=None)
    )


def traffic_rows(connection: duckdb.DuckDBPyConnection) -> tuple[TrafficRow, ...]:
    """Bytes from rank to rank: from the senders' records, else from the receivers'."""
    sent: dict[tuple[int | None, int | None], list[int]] = {}
    received: dict[tuple[int | None, int | None], list[int]] = {}
    nodes: dict[int | None, int | None] = {}
    for form, rank, peer, node, peer_node, messages, size in all_rows(connection, "traffic"):
        nodes |= {rank: node, peer: peer_node}
        ends = (rank, peer) if form == "send" else (peer, rank)
        sums = (sent if form == "send" else received).setdefault(ends, [0, 0])
        sums[0] += messages
        sums[1] += size or 0
    table = []
    for (source, destination), (messages, size) in (received | sent).items():
        places = (nodes.get(source), nodes.get(destination))
        crosses = None if None in places else places[0] != places[1]
        table.append(TrafficRow(source, destination, messages, size, crosses))
    # Equal ones by their ranks, unknown ones last: the engine's order differs from run to run.
    return tuple(
        sorted(table, key=lambda row: (-row.bytes, _place(row.source), _place(row.destination)))
    )


def _place(rank: int | None) -> float:
    return float("inf") if rank is None else rank
