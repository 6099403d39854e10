"""The stage `report`: operations are summed up where they lie, and sums alone reach the command.

    extent   when the run began and ended, and which ranks each process has
    sums     the SQL texts and unions of intervals over a share of the operations; merged by key

Both are functions of shares of a model's rows. This machine has one share, a cluster one for each
task. A share has all operations of its ranks: time with a kernel running is a union of intervals of
one rank, whose processes may be several.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

from ncclscope.analysis.kernel_time import KERNEL_TABLES, kernel_sums
from ncclscope.analysis.measures import extent
from ncclscope.analysis.query import Rows, connect, sql_text
from ncclscope.analysis.selection import DEFAULT_BY, KEYS, Selection
from ncclscope.analysis.sum_columns import SumTable
from ncclscope.analysis.sum_tables import fetch_sums, merge_sums
from ncclscope.analysis.waiting.account import Answer, waiting_account
from ncclscope.analysis.waiting.engine_tasks import SavedModel, tasks_on
from ncclscope.analysis.waiting.windows import MOST_AT_ONCE
from ncclscope.model.engine import Engine, Engines, ProcessOperations, here
from ncclscope.model.model import Model, process_edges
from ncclscope.model.schema import NONE
from ncclscope.model.sql_views import rows_of_table
from ncclscope.model.store.saved_model import FOLDER
from ncclscope.threads import Threads

SLICES = 60  # of time
# Operations that the command sums up by itself: the model of these has 0.5 GB, and the account of
# waiting of such a run needs all of it in one place.
MOST_HERE = MOST_AT_ONCE
_OF_CONTEXT = ("module", "dimension")
# Keys of texts that do not depend on what is asked for.
TEXT_KEYS = {
    "rank_sums": ("global_rank", "node"),
    "untimed_reasons": ("source", "reason"),
    "over_time": ("communicator", "slice"),
    "traffic": ("form", "global_rank", "peer_rank", "node", "peer_node"),
    "arrival_coverage": ("communicator",),
}
TABLES = ("sums", "histogram", *TEXT_KEYS, *KERNEL_TABLES)
Extent = tuple[int, int]  # from and to, ns
SumsOf = Callable[[Model, Selection, tuple[str, ...]], "ReportSums"]  # makes them, or has them
ModelOf = Callable[[], Model]  # a task asks for the model where it runs


@dataclass(frozen=True, slots=True)
class Share:
    """What one task looks at."""

    operations: tuple[Rows, ...]  # in order
    instances: Rows


@dataclass(frozen=True, slots=True)
class Work:
    """What carries out tasks about a model, and how these get it."""

    engine: Engine
    model_of: ModelOf
    threads: int | None  # of DuckDB in a task; None: as many as there are

    def waiting_account(self, model: Model, selection: Selection) -> Answer:
        """The account of waiting, made by the same engine."""
        tasks = None if self.threads is None else tasks_on(self.engine, model)
        return waiting_account(model, selection, tasks=tasks)

    def sums(self, model: Model, selection: Selection, by: tuple[str, ...]) -> "ReportSums":
        """Sums of the selected operations, made by it."""
        return report_sums(self, model, selection, by)


@dataclass(frozen=True, slots=True)
class ReportSums:
    """What the operations of a selection sum up to."""

    span: Extent | None  # of the run within the selection's window, whatever else is selected
    tables: dict[str, SumTable]


def is_long(model: Model) -> bool:
    """Whether its operations are too many for the command."""
    return rows_of_table(model, "operations") > MOST_HERE


@contextmanager
def work_on(engine_of: Engines | None, model: Model) -> Iterator[Work]:
    """An engine's work on a model: that of `engine_of` where the run is long, and the model lies
    where workers can see it; else this machine's.
    """
    visible = model.seal and os.access(model.path, os.W_OK)
    if engine_of is None or not is_long(model) or not visible:
        with here([], model.path) as engine:
            yield Work(engine, lambda: model, None)
        return
    with (
        TemporaryDirectory(prefix=f".{FOLDER}-", dir=model.path) as scratch,
        engine_of([], Path(scratch)) as engine,
    ):
        yield Work(engine, SavedModel(model.path, model.seal), engine.threads)


def report_sums(work: Work, model: Model, selection: Selection, by: tuple[str, ...]) -> ReportSums:
    """Sums of the selected operations by the keys of a report."""
    bundles = work.engine.bundles(_processes(model))
    looks = work.engine.map(LookAt(work.model_of, selection.window, len(bundles) > 1), bundles)
    spans = [look.span for look in looks if look.span is not None]
    began_ns = min((span[0] for span in spans), default=0)
    ended_ns = max((began_ns, *(span[1] for span in spans)))
    ranks = [own for look in looks for own in look.ranks]
    shares = shares_of(bundles, ranks, rows_of_table(model, "instances"))
    do = SumOperations(work.model_of, selection, by, began_ns, ended_ns, work.threads)
    merged = work.engine.reduce(do, shares, merge_sums)
    tables = work.engine.map(_as_is, [merged[place] for place in range(len(TABLES))])
    span = (began_ns, ended_ns) if spans else None
    return ReportSums(span, dict(zip(TABLES, tables, strict=True)))


def sums_here(model: Model, selection: Selection, by: tuple[str, ...]) -> ReportSums:
    """The same by this machine."""
    with work_on(None, model) as work:
        return report_sums(work, model, selection, by)


def _as_is(table: SumTable) -> SumTable:
    return table


# ---- which task looks at what ----
def _processes(model: Model) -> list[ProcessOperations]:
    """The processes with their rows; those of a process lie together."""
    operations = model.tables["operations"]
    rows = len(operations["process"])
    edges = process_edges(operations, range(len(model.processes) + 1))
    edges[0], edges[-1] = 0, rows  # also those of no process
    return [
        ProcessOperations(process, NONE, first, last - first, 0)
        for process, (first, last) in enumerate(pairwise(edges))
    ] or [ProcessOperations(NONE, NONE, 0, rows, 0)]


def shares_of(
    bundles: Sequence[Sequence[ProcessOperations]], ranks: Sequence[frozenset[int]], instances: int
) -> list[Share]:
    """A share for each bundle, with whole ranks: processes that have a rank in common are in the
    share of the first of them.
    """
    place = [number for number, bundle in enumerate(bundles) for _ in bundle]
    processes = [process for bundle in bundles for process in bundle]
    first_of: dict[int, int] = {}  # by rank the first process that has it
    together = list(range(len(processes)))

    def leader(process: int) -> int:
        while together[process] != process:
            together[process] = process = together[together[process]]
        return process

    for process, own in enumerate(ranks):
        for rank in own:
            one, other = leader(first_of.setdefault(rank, process)), leader(process)
            together[max(one, other)] = min(one, other)
    of_share: list[list[ProcessOperations]] = [[] for _ in bundles]
    for number, one_process in enumerate(processes):
        of_share[place[leader(number)]].append(one_process)
    edges = [number * instances // len(bundles) for number in range(len(bundles) + 1)]
    return [Share(_joined(own), rows) for own, rows in zip(of_share, pairwise(edges), strict=True)]


def _joined(processes: Sequence[ProcessOperations]) -> tuple[Rows, ...]:
    """The rows of processes, those that lie together as one."""
    parts: list[Rows] = []
    for process in processes:
        first, last = process.first_row, process.first_row + process.rows
        if parts and parts[-1][1] == first:
            parts[-1] = (parts[-1][0], last)
        elif last > first:
            parts.append((first, last))
    return tuple(parts) or ((0, 0),)


# ---- tasks ----
@dataclass(frozen=True, slots=True)
class Look:
    """When operations began and ended, and the ranks of each process if they were asked for."""

    span: Extent | None
    ranks: list[frozenset[int]]


@dataclass(frozen=True, slots=True)
class LookAt:
    """Looks at a bundle of processes."""

    model_of: ModelOf
    window: Selection
    with_ranks: bool

    def __call__(self, bundle: Sequence[ProcessOperations]) -> Look:
        model = self.model_of()
        spans = [self._extent(model, rows) for rows in _joined(bundle)]
        known = [span for span in spans if span is not None]
        span = (min(k[0] for k in known), max(k[1] for k in known)) if known else None
        return Look(span, [_ranks(model, one) for one in bundle] if self.with_ranks else [])

    def _extent(self, model: Model, rows: Rows) -> Extent | None:
        columns = model.tables["operations"]
        own = {name: values[slice(*rows)] for name, values in columns.items()}
        if self.window == Selection():
            return extent(own)
        first = rows[0]

        def keep(part: slice) -> npt.NDArray[np.bool_]:
            return self.window.rows(model, slice(first + part.start, first + part.stop))

        return extent(own, keep)


def _ranks(model: Model, process: ProcessOperations) -> frozenset[int]:
    """The global ranks of a process's operations, as far as they are known."""
    column = model.tables["operations"]["global_rank"]
    ranks = np.unique(column[process.first_row : process.first_row + process.rows])
    return frozenset(ranks[ranks >= 0].tolist())


@dataclass(frozen=True, slots=True)
class SumOperations:
    """Sums up the selected operations of a share: by the place in TABLES, each table."""

    model_of: ModelOf
    selection: Selection
    by: tuple[str, ...]
    began_ns: int
    ended_ns: int
    threads: int | None

    def __call__(self, share: Share) -> dict[int, SumTable]:
        model = self.model_of()
        with Threads(1) as threads:  # both run outside of the interpreter most of the time
            kernels = threads.submit(kernel_sums, model, self.selection, self.by, share.operations)
            tables = self._texts(model, share)
            tables |= kernels.result()
        return {place: tables[name] for place, name in enumerate(TABLES)}

    def _texts(self, model: Model, share: Share) -> dict[str, SumTable]:
        more = _OF_CONTEXT if model.has_context else ()
        finest = [KEYS[name] for name in dict.fromkeys((*DEFAULT_BY, *self.by, *more))]
        keys = [KEYS[name] for name in self.by]
        all_keys = {
            "sums": [*finest, "source"],
            "histogram": [*keys, "source", "bucket"],
            **TEXT_KEYS,
        }
        width_ns = max((self.ended_ns - self.began_ns) // SLICES + 1, 1)
        values: dict[str, dict[str, str | int]] = {
            "sums": {"keys": ", ".join(finest)},
            "histogram": {"keys": ", ".join(keys)},
            "over_time": {"origin_ns": self.began_ns, "width_ns": width_ns},
        }
        rows = {"operations": share.operations, "instances": [share.instances]}
        with connect(model, self.selection, rows) as connection:
            if self.threads is not None:
                connection.execute(f"set threads = {self.threads}")
            return {
                name: fetch_sums(connection, sql_text(name, **values.get(name, {})), own, model)
                for name, own in all_keys.items()
            }
