"""The tables of a report, made from a summary."""

from collections.abc import Sequence
from datetime import datetime

from ncclscope.analysis.groups import Group
from ncclscope.analysis.measures import Durations
from ncclscope.analysis.ranks import TrafficRow
from ncclscope.analysis.summary import CommunicatorRow, Summary
from ncclscope.analysis.waiting.origins import WaitingAccount
from ncclscope.humanize import AMOUNTS, NOTHING, amount, duration, percent, plural
from ncclscope.report.sample_sections import share_with_interval
from ncclscope.report.tables import Bar, Cell, Column, Spark, Table, without_columns
from ncclscope.report.units import gigabytes, microseconds, size

_MAY_BE_MISSING = ("counted", "wire", "wait", "run", "bytes over time")
_MOSTLY_KNOWN = 0.9  # of the time of kernels: what is known of less says how much that is
_LEAST_KNOWN = 0.5  # likewise, for a column
_LEAST_SHOWN = 0.01  # of all waiting: smaller origins are shown together
_KEY_TITLES = {"size": "size", "datatype": "type", "communicator": "communicator"}


def needs_trace(summary: Summary) -> str:
    """Why parts of a report are missing."""
    if summary.completeness.paused_processes:
        return "needs trace: --since 0 reports on the calls that are on record one by one"
    return "needs trace: this capture has totals only; record with --mode trace"


def identity(summary: Summary) -> list[str]:
    """Which job this is: capture, NCCL, ranks, when, how long."""
    model = summary.model
    releases = sorted({row.nccl_version for row in model.processes if row.nccl_version})
    hosts = len({row.host for row in model.processes if row.host})
    words = [str(model.path)]
    if releases:
        words.append(f"NCCL {', '.join(releases)}")
    where = f" on {plural(hosts, 'host')}" if hosts else ""  # imports may not have them
    words.append(f"{plural(summary.ranks_seen, 'rank')}{where}")
    if summary.began_ns is not None and model.realtime_offset_ns:  # 0: not known
        wall = (summary.began_ns + model.realtime_offset_ns) / 1e9
        began = datetime.fromtimestamp(wall).astimezone()
        words.append(f"{began:%Y-%m-%d %H:%M:%S}")
    if summary.span_ns:
        words.append(duration(summary.span_ns))
    return words


def headline(summary: Summary) -> str:
    """How much was moved, and how busy the GPUs were with it."""
    total = summary.total
    words = [f"{amount(total.bytes)} in {plural(total.operations, 'operation')}"]
    sample = total.sample
    if total.run_share is not None:
        share = share_with_interval(total.run_share, sample.run_share if sample else None)
        words.append(f"NCCL kernels ran {share} of the time")
    known = total.wait_known_share
    if total.wait_share is not None and known is not None:
        share = share_with_interval(total.wait_share, sample.wait_share if sample else None)
        if known >= _MOSTLY_KNOWN:
            words.append(f"{share} of that waiting for other ranks")
        else:
            words.append(
                f"waiting for other ranks is known of {percent(known)} of that: {share} of it"
            )
    if sample:
        words.append(f"timed {sample.timed:,} of {total.operations:,}")
    return ", ".join(words)


def communicators(summary: Summary, most: int) -> Table:
    """Communicators, those with most GPU time first."""
    shown = summary.communicators[:most]
    columns = (
        Column("communicator", right=False), Column("ranks"), Column("nodes"), Column("calls"),
        Column("counted"), Column("bytes"), Column("GPU time", drop=3), Column("busbw", drop=2),
        Column("wait", drop=1), Column("run"), Column("bytes over time", right=False, drop=4),
    )  # fmt: skip
    notes = []
    if any(row.total.run_share is not None for row in shown):
        of = "time on record" if summary.completeness.paused_processes else "run"
        notes.append(f"run: share of the {of} with a kernel of it running, mean over its ranks")
    if any(row.name_inferred for row in shown):
        notes.append("*: name inferred from membership")
    if len(summary.communicators) > most:
        more = plural(len(summary.communicators) - most, "more communicator")
        notes.append(f"{more}: --by communicator, --comm and --csv show them")
    rows = tuple(_communicator_row(row) for row in shown)
    table = Table("communicators", columns, rows, tuple(notes))
    return without_empty([table], _MAY_BE_MISSING)[0]


def roles(summary: Summary) -> Table | None:
    """Communicators pooled by role; None where there are few."""
    if not summary.roles:
        return None
    columns = (
        Column("role", right=False), Column("communicators"), Column("ranks"), Column("nodes"),
        Column("calls"), Column("bytes"), Column("GPU time"), Column("busbw"), Column("wait"),
    )  # fmt: skip
    rows = tuple(
        (
            row.role, f"{row.communicators:,}", _range(row.ranks), _range(row.nodes),
            f"{row.total.calls:,}", amount(row.total.bytes), duration(_gpu_ns(row.total)),
            gigabytes(row.total.busbw_gbs), _wait(row.total),
        )
        for row in summary.roles
    )  # fmt: skip
    note = "ranks, nodes: of one communicator; --comm 'tp*' reports those of one role"
    return Table("communicators by role", columns, rows, (note,))


def _range(ends: tuple[int, int]) -> str:
    if not ends[1]:
        return NOTHING
    return str(ends[0]) if ends[0] == ends[1] else f"{ends[0]}-{ends[1]}"


def _communicator_row(row: CommunicatorRow) -> tuple[Cell, ...]:
    total = row.total
    return (
        row.name + ("*" if row.name_inferred else ""),
        NOTHING if row.ranks is None else str(row.ranks),
        NOTHING if row.nodes is None else str(row.nodes),
        f"{total.calls:,}",
        NOTHING if total.calls_counted is None else f"{total.calls_counted:,}",
        amount(total.bytes),
        duration(_gpu_ns(total)),
        gigabytes(total.busbw_gbs),
        _wait(total),
        percent(total.run_share),
        Spark(row.slices) if row.slices else NOTHING,
    )


def _gpu_ns(group: Group) -> int | None:
    times = group.durations
    return times.total_ns if times and times.grade == "gpu" else None


def _wait(group: Group) -> str:
    """The share of waiting: by one clock, else by durations alone, marked with ~. Where it is known
    of little of the time, it says nothing about the rest.
    """
    if (group.wait_known_share or 0.0) < _LEAST_KNOWN and group.wait_share is not None:
        return NOTHING
    if group.wait_share is not None:
        return percent(group.wait_share)
    if group.relative_wait_share is not None:
        return "~" + percent(group.relative_wait_share)
    return NOTHING


def scopes(summary: Summary) -> Table | None:
    """Within nodes against across nodes; None where there is only one of them."""
    if len(summary.scopes) < 2:
        return None
    columns = (
        Column("", right=False), Column("communicators"), Column("calls"), Column("bytes"),
        Column("GPU time"), Column("busbw"), Column("wait"),
    )  # fmt: skip
    rows = tuple(
        (
            row.scope, str(row.communicators), f"{row.total.calls:,}", amount(row.total.bytes),
            duration(_gpu_ns(row.total)), gigabytes(row.total.busbw_gbs), _wait(row.total),
        )
        for row in summary.scopes
    )  # fmt: skip
    return Table("within and across nodes", columns, rows)


def _key_cell(group: Group, key: str) -> str:
    value = group.keys.get(key)
    if value is None:
        return NOTHING
    if key == "size":
        return size(int(value)) + ("+" if group.size_is_class else "")
    if key == "function" and group.inferred:
        return f"{value}*"
    return str(value)


def _times(times: Durations | None) -> tuple[str, ...]:
    if times is None:
        return (NOTHING,) * 5
    mark = "≥" if times.lower_bound else "≤" if times.upper_bound else ""
    mark = mark if times.grade == "gpu" else "~"
    values = (
        times.shortest_ns, times.median_ns, times.mean_ns, times.p99_ns, times.longest_ns,
    )  # fmt: skip
    return tuple(mark + microseconds(value) for value in values)


def operations(
    title: str, keys: tuple[str, ...], groups: tuple[Group, ...], whole_ns: int
) -> Table:
    """Groups one by one; `whole_ns` is what their time is a share of."""
    same = all(group.calls == group.operations for group in groups)
    return without_empty([_operations(title, keys, groups, whole_ns, same)], _MAY_BE_MISSING)[0]


def _operations(
    title: str, keys: tuple[str, ...], groups: tuple[Group, ...], whole_ns: int, same: bool
) -> Table:
    """All columns; `same`: calls and operations are the same in all tables."""
    columns = (
        *(Column(_KEY_TITLES.get(key, key), right=key in ("size", "rank", "tag")) for key in keys),
        Column("calls"), Column("counted"), Column("ops", drop=10 if same else 5),
        Column("min", drop=7),
        Column("median"), Column("mean", drop=6), Column("p99"), Column("max", drop=4),
        Column("algbw", drop=9),
        Column("busbw"), Column("wire", drop=2), Column("wait", drop=1), Column("run", drop=3),
        Column("time", right=False, drop=8),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for group in groups:
        total = group.durations.total_ns if group.durations else 0
        rows.append(
            (
                *(_key_cell(group, key) for key in keys),
                f"{group.calls:,}",
                NOTHING if group.calls_counted is None else f"{group.calls_counted:,}",
                f"{group.operations:,}", *_times(group.durations),
                gigabytes(group.algbw_gbs), gigabytes(group.busbw_gbs),
                gigabytes(group.busbw_wire_gbs), _wait(group), percent(group.run_share),
                Bar(total / whole_ns if whole_ns else 0.0),
            )
        )  # fmt: skip
    return Table(title, columns, tuple(rows))


def without_empty(tables: Sequence[Table], titles: tuple[str, ...]) -> list[Table]:
    """Tables of equal columns without those of the named ones that have nothing in any row."""
    rows = [row for table in tables for row in table.rows]
    empty = [
        column.title
        for place, column in enumerate(tables[0].columns if tables else ())
        if column.title in titles and all(row[place] == NOTHING for row in rows)
    ]
    return [without_columns(table, empty) for table in tables]


def operation_tables(summary: Summary, groups: tuple[Group, ...], most: int) -> list[Table]:
    """One table for each communicator where that is the first key, else one. `most`: rows."""
    whole = max((g.durations.total_ns for g in groups if g.durations), default=0)
    if summary.by[:1] != ("communicator",) or len(summary.by) == 1:
        return [operations("operations", summary.by, groups[:most], whole)] if groups else []
    same = all(group.calls == group.operations for group in groups)
    tables, left = [], most
    for row in summary.communicators:
        own = tuple(group for group in groups if group.keys["communicator"] == row.name)
        if own and left > 0:
            title = f"{row.name}: {_place(row)}"
            tables.append(_operations(title, summary.by[1:], own[:left], whole, same))
            left -= len(own)
    return without_empty(tables, _MAY_BE_MISSING)


def _place(row: CommunicatorRow) -> str:
    ranks = "ranks not known" if row.ranks is None else plural(row.ranks, "rank")
    return ranks if row.nodes is None else f"{ranks} on {plural(row.nodes, 'node')}"


def operation_notes(groups: tuple[Group, ...], shown: int) -> list[str]:
    """What the marks mean that occur in the tables."""
    times = [group.durations for group in groups if group.durations]
    notes = ["calls over all ranks; times in µs, on one rank; bandwidth in GB/s as in nccl-tests"]
    if any(group.calls_counted is not None for group in groups):
        notes.append("counted: calls that were made; calls and all the rest: those on record")
    if any(group.busbw_wire_gbs is not None for group in groups):
        notes.append("wire: busbw from the last rank's arrival on; wait: share of time before it")
    if any(group.wait_share is None and group.relative_wait_share is not None for group in groups):
        notes.append("~ wait: from durations alone, without a common clock")
    if any(time.lower_bound for time in times):
        notes.append(
            "≥: the GPU's stop stamp may come early; such operations count for no bandwidth"
        )
    if any(group.sample for group in groups):
        notes.append("times and bandwidths are those of a sample; below are their intervals")
    if any(time.upper_bound for time in times):
        notes.append(
            "≤: CUDA events around launches that several operations share, or whose excess is not "
            "known; such operations count for no bandwidth"
        )
    if any(time.grade != "gpu" for time in times):
        notes.append("~ time: as the host saw it, not the GPU")
    if any(group.inferred for group in groups):
        notes.append("*: inferred from a group of sends and receives")
    if any(group.size_is_class for group in groups):
        notes.append("+: sizes from here to below twice that")
    if shown < len(groups):
        notes.append(f"{plural(len(groups) - shown, 'more row')}: --comm, --op and --csv show them")
    return notes


def origins(summary: Summary, most: int) -> Table | None:
    """Where waiting began; None where it cannot be seen, or there is none."""
    account = summary.waiting
    if account is None or not account.total_ns:
        return None
    names, total = summary.model.communicator_names, account.total_ns
    shown = [o for o in account.origins if o.waiting_ns >= _LEAST_SHOWN * total][:most]
    columns = (
        Column("origin", right=False), Column("", right=False), Column("waiting"), Column("share"),
        Column("", right=False, drop=3), Column("times"), Column("typically"),
        Column("on the path", drop=2),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (
            names[o.communicator] if o.communicator is not None else f"rank {o.rank}", o.kind,
            duration(o.waiting_ns), percent(o.waiting_ns / total), Bar(o.waiting_ns / total),
            f"{o.times:,}", duration(o.typical_ns), duration(o.on_path_ns),
        )
        for o in shown
    ]  # fmt: skip
    others = sum(o.waiting_ns for o in account.origins) - sum(o.waiting_ns for o in shown)
    parts = (
        ("others", others),
        ("start-up", account.start_up_ns),
        ("structure of the job", account.structure_ns),
        ("below the clock error", account.below_clock_error_ns),
        ("unknown", account.unknown_ns),
        ("all waiting", total),
    )
    rows += [
        (name, "", duration(ns), percent(ns / total), Bar(0.0), "", "", "")
        for name, ns in parts
        if ns
    ]
    return Table("origins of waiting", columns, tuple(rows), tuple(_waiting_notes(account)))


def _waiting_notes(account: WaitingAccount) -> list[str]:
    notes = ["waiting of all ranks together, by what was longer than usual and where it began"]
    if account.unseen:
        listed = ", ".join(f"{count:,} with {reason}" for reason, count in account.unseen.items())
        notes.append(f"not looked at: operations that show no waiting: {listed}")
    return notes


def ranks(summary: Summary, most: int) -> Table | None:
    """Ranks by the waiting that began on them; None where no waiting can be seen."""
    arrivals = summary.arrivals
    rows = [(row, row.waiting) for row in summary.ranks or () if row.waiting is not None]
    if not rows or arrivals is None or not arrivals.compared:
        return None
    worst = max(waiting.origin_ns for _, waiting in rows)
    columns = (
        Column("rank"), Column("host", right=False, drop=1), Column("made others wait"),
        Column("", right=False), Column("came last"), Column("passed on", drop=2),
        Column("waited itself"),
    )  # fmt: skip
    cells = tuple(
        (
            NOTHING if row.rank is None else str(row.rank), row.host, duration(waiting.origin_ns),
            Bar(waiting.origin_ns / worst if worst else 0.0), f"{waiting.times_last:,}",
            duration(waiting.passed_on_ns), duration(waiting.waited_ns),
        )
        for row, waiting in rows[:most]
    )  # fmt: skip
    error = f", clocks agree to ±{duration(arrivals.error_ns)}" if arrivals.error_ns else ""
    notes = [
        "made others wait: what began on the rank; passed on: waiting for it that began elsewhere",
        f"last arriver certain in {arrivals.certain:,} of {arrivals.compared:,} instances{error}",
    ]
    if summary.total.sample:
        notes.append("sums over operations that were timed, a sample: all of them waited longer")
    if len(rows) > most:
        notes.append(f"{plural(len(rows) - most, 'more rank')} not shown")
    return Table("ranks by waiting caused", columns, cells, tuple(notes))


def _matrix(rows: tuple[TrafficRow, ...], ranks: list[int]) -> Table:
    """Rank by rank, all in the unit of the largest."""
    sums = {(row.source, row.destination): row.bytes for row in rows}
    unit = amount(max(sums.values())).split(" ")[1]
    divisor = 1000 ** AMOUNTS.index(unit)
    cells: list[tuple[Cell, ...]] = []
    for source in ranks:
        line = [sums.get((source, to)) for to in ranks]
        texts = ["·" if n is None else f"{n / divisor:.3g}" for n in line]
        cells.append((str(source), *texts))
    columns = (Column("from \\ to"), *(Column(str(rank)) for rank in ranks))
    return Table(f"sends from rank to rank, {unit}", columns, tuple(cells))


def traffic(summary: Summary, most: int, most_ranks: int) -> Table | None:
    """Rank by rank where they are few, else the pairs with most bytes; None without any."""
    if not summary.traffic:
        return None
    ends = {row.source for row in summary.traffic} | {row.destination for row in summary.traffic}
    if None not in ends and len(ends) <= most_ranks:
        return _matrix(summary.traffic, sorted(end for end in ends if end is not None))
    largest = summary.traffic[0].bytes
    columns = (
        Column("from"), Column("to"), Column("messages"), Column("bytes"), Column("", right=False),
        Column("", right=False, drop=1),
    )  # fmt: skip
    places = {None: "", True: "across nodes", False: "within a node"}
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            "?" if row.source is None else str(row.source),
            "?" if row.destination is None else str(row.destination),
            f"{row.messages:,}", amount(row.bytes), Bar(row.bytes / largest if largest else 0),
            places[row.crosses_nodes],
        )
        for row in summary.traffic[:most]
    )  # fmt: skip
    left = len(summary.traffic) - most
    notes = (f"{plural(left, 'more pair')} not shown",) if left > 0 else ()
    return Table("sends from rank to rank", columns, rows, notes)


def sizes(summary: Summary) -> Table | None:
    """A histogram of message sizes."""
    if not summary.sizes:
        return None
    most = max(row.operations for row in summary.sizes)
    time = sum(row.gpu_ns for row in summary.sizes)
    columns = (
        Column("size from"), Column("operations"), Column("", right=False), Column("bytes"),
        Column("of GPU time"),
    )  # fmt: skip
    rows = tuple(
        (
            size(row.low_bytes), f"{row.operations:,}",
            Bar(row.operations / most if most else 0.0), amount(row.bytes),
            percent(row.gpu_ns / time if time else None),
        )
        for row in summary.sizes
    )  # fmt: skip
    return Table("message sizes", columns, rows)


def untimed(summary: Summary) -> Table | None:
    """Why operations have no GPU time."""
    if not summary.untimed:
        return None
    rows = tuple((f"{count:,}", reason) for reason, count in summary.untimed.items())
    columns = (Column("operations"), Column("reason", right=False))
    return Table("without a GPU time", columns, rows)
