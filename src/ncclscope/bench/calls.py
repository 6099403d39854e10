"""All calls of all ranks as a Parquet file."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ncclscope.bench.results import Result
from ncclscope.output_files import put_file, scratch_near

# Signed integers only, for Spark. host_ns is NULL if a call's end was not awaited.
_COLUMNS = """
operation, variant, size_bytes::bigint as size_bytes, count::bigint as count, datatype, reduction,
root::integer as root, in_place, ranks::integer as ranks, rank::integer as rank,
run::integer as run, call::integer as call, grouped::integer as grouped, gpu_ns::bigint as gpu_ns,
call_ns::bigint as call_ns, nullif(host_ns, -1)::bigint as host_ns, simulated
"""


def _columns(result: Result, simulated: bool) -> dict[str, object]:
    """A row for each call on each rank; grouped calls are one row."""
    case, ranks = result.case, result.ranks
    calls, rows = result.calls, result.calls * len(ranks)
    run = np.concatenate([np.full(loop.calls, loop.run) for loop in ranks[0].loops])

    def each(value: object) -> object:
        return np.full(rows, value)

    return {
        "operation": each(case.spec.function),
        "variant": each(case.operation),
        "size_bytes": each(result.size_bytes),
        "count": each(result.count),
        "datatype": each(case.datatype),
        "reduction": each(case.reduction),
        "root": each(case.root),
        "in_place": each(case.in_place),
        "ranks": each(case.ranks),
        "rank": np.repeat([times.rank for times in ranks], calls),
        "run": np.tile(run, len(ranks)),
        "call": np.tile(np.arange(calls), len(ranks)),
        "grouped": each(result.grouped),
        "gpu_ns": np.concatenate([times.gpu_ns for times in ranks]),
        "call_ns": np.concatenate([times.call_ns for times in ranks]),
        "host_ns": np.concatenate([times.host_ns for times in ranks]),
        "simulated": each(simulated),
    }


def write_calls(results: Sequence[Result], simulated: bool, path: Path) -> int:
    """Writes all calls; returns the number of rows."""
    import duckdb  # measuring needs numpy only

    rows = 0
    with scratch_near(path) as scratch, duckdb.connect() as connection:
        for number, result in enumerate(results):
            columns = _columns(result, simulated)
            rows += result.calls * len(result.ranks)
            connection.register("result", columns)
            target = "insert into calls" if number else "create table calls as"
            connection.execute(f"{target} select {_COLUMNS} from result")
            connection.unregister("result")
        file = scratch / "calls.parquet"
        quoted = str(file).replace("'", "''")
        connection.execute(f"copy calls to '{quoted}' (format parquet, compression zstd)")
        put_file(file, path)
    return rows
