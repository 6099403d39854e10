"""Tables as `ncclscope.open` shows them: the columns of docs/schema.md, and some made of these.

Added columns: global ranks beside ranks of communicators, bandwidths, and the wall clock. Ranks of
communicators say so in their names: `communicator_rank` where files have `rank`.
"""

import tempfile
from pathlib import Path

import duckdb
import numpy as np

from ncclscope.analysis.measures import EXACT_SOURCES
from ncclscope.capture.reader import is_dataset
from ncclscope.errors import NcclscopeError
from ncclscope.ingest.call_stacks import COLUMNS as STACK_COLUMNS
from ncclscope.ingest.call_stacks import TABLE as STACKS
from ncclscope.ingest.call_stacks import stacks_query
from ncclscope.model.detail_schema import DETAILS
from ncclscope.model.detail_tables import details_of
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE, TABLES
from ncclscope.model.sql_views import (
    SHOWN,
    create_small_tables,
    create_system_table,
    literal,
    open_database,
    raw_columns,
    rows_of_table,
    select_list,
    shown_columns,
)
from ncclscope.nccl.bandwidth import bus_factor

PAIRS = "pairs"
NAMES = (*SHOWN, PAIRS, STACKS)  # of all tables
# Columns with a time, and the column with its wall clock.
_CLOCKS = {
    "call_ns": "call_utc",
    "start_ns": "start_utc",
    "end_ns": "end_utc",
    "first_start_ns": "start_utc",
    "last_end_ns": "end_utc",
    "time_ns": "time_utc",
}
# Columns with ranks of a communicator, as files name them and as Python does.
LOCAL_NAMES = {
    "rank": "communicator_rank",
    "peer": "peer_communicator_rank",
    "root": "root_communicator_rank",
    "source_rank": "source_communicator_rank",
    "destination_rank": "destination_communicator_rank",
}
# Ranks of a communicator, and the columns with their ranks in the job.
_LOCAL_RANKS = {
    "instances": {
        "last_communicator_rank": "last_global_rank",
        "source_rank": "source_global_rank",
        "destination_rank": "destination_global_rank",
    },
    "operations": {"peer": "peer_global_rank", "root": "root_global_rank"},
    "proxy_ops": {"peer": "peer_global_rank"},
}
_PAIRS = """
select source_global_rank, destination_global_rank,
    any_value(source.host) as source_host, any_value(destination.host) as destination_host,
    count(*) as messages, cast(sum(size_bytes) as bigint) as bytes,
    cast(sum(last_end_ns - last_start_ns) as bigint) as wire_ns,
    sum(size_bytes) filter (last_end_ns > last_start_ns)
        / nullif(sum(last_end_ns - last_start_ns), 0) as busbw_wire_gbs
from instances
left join places as source on source.global_rank = source_global_rank
left join places as destination on destination.global_rank = destination_global_rank
where form = 'send' and source_global_rank is not null and destination_global_rank is not null
group by all order by all
"""
# A place for every rank up to the largest: ranks that are not on record have no row in `members`.
_GLOBAL_RANKS = f"""
set variable global_ranks = (
    with places as (
        select row as communicator, unnest(range(coalesce(last, -1) + 1)) as rank
        from raw_sizes left join (select communicator, max(rank) as last from raw_ranks group by 1)
            on communicator = row
    ), lists as (
        select communicator, list(coalesce(global_rank, {NONE}) order by rank) as ranks
        from places left join (
            select communicator, rank, any_value(global_rank) as global_rank
            from raw_ranks group by all
        ) using (communicator, rank) group by 1
    )
    select list(coalesce(lists.ranks, []) order by row)
    from raw_sizes left join lists on communicator = row
)
"""
_PLACES = """
select global_rank, any_value(host) as host from members
where global_rank is not null group by global_rank
"""


def name_in_python(column: str) -> str:
    """What Python calls a column of the schema."""
    return LOCAL_NAMES.get(column, column)


def added_columns(table: str) -> dict[str, str]:
    """The columns that Python's tables have beyond docs/schema.md: name → meaning."""
    names = {column.name for column in shown_columns(table)}
    added: dict[str, str] = {}
    if "process" in names and "global_rank" not in names:
        added["global_rank"] = "rank in the job; of a process with several, the lowest"
    for local, name in _LOCAL_RANKS.get(table, {}).items():
        added[name] = f"rank in the job of `{name_in_python(local)}`"
    if table == "operations":
        added["algbw_gbs"] = "algorithm bandwidth, as nccl-tests define it"
        added["busbw_gbs"] = "bus bandwidth, as nccl-tests define it"
    if table in ("operations", "instances"):
        added["busbw_wire_gbs"] = "bus bandwidth from the last rank's arrival on"
    if table == "steps":
        added["duration_ns"] = "end - start"
    for column, name in _CLOCKS.items():
        if column in names:
            added[name] = f"`{column}` by the wall clock, in UTC"
    return added


def _expression(model: Model, table: str, name: str) -> str:
    """SQL for an added column, over the shown columns of the table."""
    for local, global_name in _LOCAL_RANKS.get(table, {}).items():
        if name == global_name:
            return f"nullif(getvariable('global_ranks')[communicator + 1][{local} + 1], {NONE})"
    if name == "global_rank":
        ranks = ", ".join(str(row.global_rank) for row in model.processes)
        return f"nullif(([{ranks}])[process + 1], {NONE})" if ranks else "cast(null as integer)"
    if name == "duration_ns":
        return "end_ns - start_ns"
    if name.endswith("_utc"):
        column = next(c for c, utc in _CLOCKS.items() if utc == name and c in _column_names(table))
        if not model.realtime_offset_ns:  # 0: not known
            return "cast(null as timestamp)"
        return f"make_timestamp(({column} + {int(model.realtime_offset_ns)}) // 1000)"
    exact = ", ".join(map(literal, EXACT_SOURCES))
    bandwidth = f"case when source in ({exact}) then size_bytes / nullif(duration_ns, 0) end"
    wire_ns = "wire_ns" if table == "operations" else "(last_end_ns - last_start_ns)"
    factor = _bus_factors(model)
    return {
        "algbw_gbs": bandwidth,
        "busbw_gbs": f"{bandwidth} * {factor}",
        "busbw_wire_gbs": f"case when {wire_ns} > 0 then size_bytes / {wire_ns} end * {factor}",
    }[name]


def _column_names(table: str) -> set[str]:
    return {column.name for column in shown_columns(table)}


def _bus_factors(model: Model) -> str:
    """busbw / algbw by the function and the number of ranks."""
    cases = []
    for ranks in sorted({int(n) for n in model.tables["communicators"]["ranks"].tolist()}):
        for function in model.words["function"]:
            factor = bus_factor(function, ranks)
            if factor is not None:
                key = f'"function" = {literal(function)} and {_RANKS} = {ranks}'
                cases.append(f"when {key} then {factor!r}")
    return f"(case {' '.join(cases)} end)" if cases else "cast(null as double)"


_RANKS = "getvariable('communicator_ranks')[communicator + 1]"


def _shown(model: Model, table: str, source: str) -> str:
    """A query for a table with its added columns."""
    plain = f"select {select_list(model, table)} from {source}"
    columns = [
        f'"{column.name}" as "{name_in_python(column.name)}"' for column in shown_columns(table)
    ]
    return f"select {', '.join([*columns, *_added(model, table)])} from ({plain})"


def _added(model: Model, table: str) -> list[str]:
    return [f'{_expression(model, table, name)} as "{name}"' for name in added_columns(table)]


def connect(model: Model) -> duckdb.DuckDBPyConnection:
    """A connection with the saved tables of a model as they are shown."""
    connection = open_database()
    connection.execute("set python_scan_all_frames = true")  # users' own tables can be joined
    connection.execute("set temp_directory = ?", [str(Path(tempfile.gettempdir(), "ncclscope"))])
    _set_ranks(connection, model)
    for table in TABLES:
        raw = raw_columns(model, table, 0, rows_of_table(model, table))
        connection.register(f"raw_{table}", raw)
        connection.execute(f"create temp view {table} as {_shown(model, table, f'raw_{table}')}")
    create_small_tables(connection, model)
    connection.execute(f"create temp view places as {_PLACES}")
    connection.execute(f"create temp view {PAIRS} as {_PAIRS}")
    return connection


def _set_ranks(connection: duckdb.DuckDBPyConnection, model: Model) -> None:
    """Lists by communicator: its number of ranks, and the global rank of each. Variables, because
    texts of lists would be parsed with each query: 3 s of 10,000 ranks.
    """
    members = model.tables["members"]
    known = np.flatnonzero(np.asarray(members["rank"]) >= 0)
    columns = {n: np.asarray(members[n])[known] for n in ("communicator", "rank", "global_rank")}
    sizes = np.asarray(model.tables["communicators"]["ranks"])
    connection.register("raw_ranks", columns)
    connection.register("raw_sizes", {"row": np.arange(len(sizes)), "ranks": sizes})
    connection.execute(_GLOBAL_RANKS)
    connection.execute(
        "set variable communicator_ranks = (select list(ranks order by row) from raw_sizes)"
    )
    connection.unregister("raw_ranks")
    connection.unregister("raw_sizes")


def create_on_first_use(connection: duckdb.DuckDBPyConnection, model: Model, table: str) -> bool:
    """Makes a table that needs the capture's files; False where there is no such table."""
    if table == "system":
        create_system_table(connection, model)
        added = ", ".join(["*", *_added(model, table)])
        connection.execute(f"create or replace temp table system as select {added} from system")
    elif table in DETAILS:
        _create_details(connection, model, table)
    elif table == STACKS:
        columns = ", ".join(f"cast(null as {kind}) as {name}" for name, kind, _ in STACK_COLUMNS)
        query = stacks_query(model.path) or f"select {columns} limit 0"
        connection.execute(f"create temp table {STACKS} as {query}")
    else:
        return False
    return True


def _create_details(connection: duckdb.DuckDBPyConnection, model: Model, table: str) -> None:
    """Makes a detail table from the capture's events, process by process."""
    if is_dataset(model.path):
        message = f"cannot make {table} of {model.path}: a dataset has no events"
        raise NcclscopeError(message, "Open the capture that it was made of")
    exists = False
    for columns in details_of(model, table):
        connection.register("raw_details", columns)
        statement = f"insert into {table}" if exists else f"create temp table {table} as"
        connection.execute(f"{statement} {_shown(model, table, 'raw_details')}")
        connection.unregister("raw_details")
        exists = True
    if not exists:
        message = f"cannot make {table} of {model.path}: none of its processes can be read"
        raise NcclscopeError(message, "Its files have gone since the model was made")
