"""Call stacks of imported operations, as a table of their dataset: `operation`, `stack`.

Only Flight Recorder's dumps have them. A stack is a text, the innermost frame first, one a line:

    /usr/lib/torch/distributed/distributed_c10d.py:2501 all_reduce
    train.py:42 train_step

Many calls share one, so each text is kept once while files are read; Parquet's dictionaries do the
same on disk.

DuckDB is imported late: `diagnose` needs numpy alone, as long as there are no stacks.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from ncclscope.capture.reader import DATASET_FILE
from ncclscope.errors import FormatError
from ncclscope.humanize import printable
from ncclscope.output_files import write_text

TABLE = "stacks"
COLUMNS = (
    ("operation", "bigint", "row of `operations`"),
    ("stack", "varchar", "where it was called: `file:line function`, the innermost frame first"),
)
MOST_FRAMES = 256  # of one stack; outer ones are left out
_MOST_STACKS = 1 << 16  # different ones of an import
_LIBRARIES = ("/torch/", "torch/", "<frozen")  # frames that are nobody's own code


def stack_text(frames: Iterable[tuple[str, str, int]]) -> str:
    """A stack of frames: function, file and line, the innermost first."""
    lines = [f"{file or '?'}:{line} {name or '?'}" for name, file, line in frames]
    return "\n".join(printable(line) for line in lines[:MOST_FRAMES])


def own_frame(stack: str) -> str:
    """The innermost frame outside PyTorch, else the innermost one: `train.py:42 in train_step`."""
    lines = stack.splitlines()
    own = [line for line in lines if not any(part in line for part in _LIBRARIES)]
    where, _, name = (own or lines or ["?"])[0].rpartition(" ")
    return f"{where} in {name}" if where else name


class CallStacks:
    """Stacks of operations, while an import is made."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._rows: list[tuple[int, int, int]] = []  # process, place among its operations, stack
        self._operations: Counter[int] = Counter()  # by process

    def add(self, process: int, stack: str) -> None:
        """Adds the next operation of a process; "" has no stack."""
        place = self._operations[process]
        self._operations[process] += 1
        if stack and (stack in self._codes or len(self._codes) < _MOST_STACKS):
            self._rows.append((process, place, self._codes.setdefault(stack, len(self._codes))))

    def write(self, dataset: Path) -> None:
        """Writes the table into a dataset, whose operations are sorted by process; nothing where no
        operation has a stack.
        """
        from ncclscope.model.sql_views import copy_to_file, literal, open_connection

        if not self._rows:
            return
        processes = sorted(self._operations)
        sizes = [self._operations[process] for process in processes]
        first = dict(zip(processes, np.cumsum([0, *sizes]).tolist(), strict=False))
        rows = sorted((first[process] + place, code) for process, place, code in self._rows)
        columns = {
            "operation": np.array([row for row, _ in rows], np.int64),
            "stack": np.array(list(self._codes), object)[[code for _, code in rows]],
        }
        (dataset / TABLE).mkdir()
        file = literal(str(dataset / TABLE / "part-00000.parquet"))
        with open_connection() as connection:
            connection.register("stacks", columns)
            copy_to_file(connection, f"copy stacks to {file} (format parquet, compression zstd)")
        schema = json.loads((dataset / DATASET_FILE).read_text())
        schema["tables"][TABLE] = [
            {"name": name, "type": kind, "meaning": text} for name, kind, text in COLUMNS
        ]
        write_text(dataset / DATASET_FILE, json.dumps(schema, indent=1) + "\n")


def stacks_query(path: Path) -> str | None:
    """A query for the stacks of a dataset; None where it has none."""
    from ncclscope.model.sql_views import literal

    files = sorted(file for file in (path / TABLE).glob("*.parquet") if file.is_file())
    listed = ", ".join(literal(str(file)) for file in files)
    shown = ", ".join(f"cast({name} as {kind}) as {name}" for name, kind, _ in COLUMNS)
    return f"select {shown} from read_parquet([{listed}])" if files else None


def stacks_of(path: Path, operations: Iterable[int]) -> Mapping[int, str]:
    """The stacks of some operations of a dataset, by row."""
    rows = sorted(set(operations))
    if not rows or not (path / TABLE).is_dir():
        return {}
    import duckdb

    from ncclscope.model.sql_views import open_connection

    query = stacks_query(path)
    if query is None:
        return {}
    listed = ", ".join(map(str, rows))
    try:
        with open_connection() as connection:
            found = connection.execute(
                f"select * from ({query}) where operation in ({listed}) and stack is not null"
            ).fetchall()
    except duckdb.Error as error:
        cause = str(error).splitlines()[0][:300]
        raise FormatError(f"cannot read {path / TABLE}: {cause}", "Import it again") from None
    return {row: "\n".join(map(printable, stack.splitlines())) for row, stack in found}
