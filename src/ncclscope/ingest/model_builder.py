"""Makes a model on disk of the records of other tools' files: rows, one clock, instances.

Some thousand rows of each process are kept in memory, then appended to the model's columns.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from ncclscope.arrays.types import Ints
from ncclscope.humanize import plural
from ncclscope.ingest.call_stacks import CallStacks
from ncclscope.ingest.records import (
    Format,
    ImportedMember,
    ImportedProcess,
    ImportReport,
    Operation,
    Record,
    check_counted,
)
from ncclscope.ingest.registry import ImportRegistry
from ncclscope.model.align.host_clocks import solve
from ncclscope.model.completeness import Completeness, impossible_sizes
from ncclscope.model.match.instances import Instances
from ncclscope.model.match.waits import Waits
from ncclscope.model.model import Model
from ncclscope.model.process.durations import IMPOSSIBLE_TIMES
from ncclscope.model.schema import (
    COLLECTIVE,
    CONTEXT_COLUMNS,
    FORMS,
    GPU_CODES,
    IN_FLIGHT,
    NONE,
    OPERATIONS,
    SOURCES,
    TIME_COLUMNS,
    Columns,
    empty,
)
from ncclscope.model.store.saved_model import Writer, manifest_of
from ncclscope.model.streams import PAIRS, StreamCounter, rules_of
from ncclscope.model.vocabulary import Vocabulary
from ncclscope.nccl.limits import LARGEST_BYTES

_ROWS_OF_PROCESS = 1 << 15  # that are held in memory
_ROWS_HELD = 1 << 17  # of all processes
_NO_SOURCE = SOURCES.index("none")
_KEPT = [column for column in OPERATIONS if column.name not in CONTEXT_COLUMNS]
_LIMITS = {column.name: np.iinfo(column.dtype).max for column in OPERATIONS}
_GAPS = "operations missing on every rank: gaps in their numbers"
Values = Mapping[str, int | str]


class ImportBuilder:
    """A model that is being made of records, in a temporary folder."""

    def __init__(self, folder: Path, form: Format, stacks: CallStacks) -> None:
        self._folder, self._form, self._stacks = folder, form, stacks
        self._writer = Writer(folder)
        self._words = Vocabulary()
        self._registry = ImportRegistry(form.name)
        self._rows: dict[int, list[Values]] = {}  # by process, not written yet
        self._slices: list[tuple[int, slice]] = []  # of the written ones
        self._streams = StreamCounter()
        self._orders: Counter[tuple[int, ...]] = Counter()
        self._first_ns: dict[int, int] = {}  # by process
        self._report = ImportReport()
        self._operations = self._held = 0
        self._totals: Counter[str] = Counter()
        self._untimed: Counter[str] = Counter()

    def add(self, records: Iterable[Record]) -> None:
        """Adds the records of one file."""
        registry = self._registry
        for record in records:
            if isinstance(record, ImportedProcess):
                registry.process(record)
                continue
            process = registry.process(record.process)
            communicator = registry.communicator(record.communicator)
            if isinstance(record, ImportedMember):
                registry.member(communicator, process, record.rank, record.global_rank)
            else:
                self._add_operation(process, communicator, record)
        self._write_all()

    def _add_operation(self, process: int, communicator: int, operation: Operation) -> None:
        self._operations += 1
        check_counted(self._operations, self._form.most_operations)
        values = {**operation.values, "communicator": communicator}
        rank = int(values.get("rank", NONE))
        self._registry.member(communicator, process, rank)
        if self._form.numbered and "call_order" not in values:
            key: tuple[int, ...] = (process, communicator, rank)
            if values.get("form", "collective") != "collective":
                key = (*key, int(values["form"] == "send"), int(values.get("peer", NONE)))
            values["call_order"] = self._orders[key]
            self._orders[key] += 1
        self._stacks.add(process, operation.stack)
        rows = self._rows.setdefault(process, [])
        rows.append(values)
        self._held += 1
        if len(rows) >= _ROWS_OF_PROCESS:
            self._write(process)
        elif self._held >= _ROWS_HELD:
            self._write_all()

    def _write_all(self) -> None:
        for process in sorted(self._rows):
            self._write(process)

    def _write(self, process: int) -> None:
        rows = self._rows.pop(process)
        self._held -= len(rows)
        columns = _columns_of(rows, self._words)
        columns["process"][:] = process
        columns["node"][:] = self._registry.node(self._registry.processes[process])
        unsized = columns["size_bytes"] > LARGEST_BYTES
        columns["size_bytes"][unsized] = NONE
        self._totals["unsized"] += int(unsized.sum())
        _complete_times(columns, self._words)
        first = _first_time(columns)
        if first != NONE:
            self._first_ns[process] = min(self._first_ns.get(process, first), first)
        self._count(columns)
        self._streams.add(_numbered(columns))
        begin = self._slices[-1][1].stop if self._slices else 0
        self._slices.append((process, slice(begin, begin + len(rows))))
        self._writer.append("operations", columns)

    def _count(self, columns: Columns) -> None:
        in_flight = columns["state"] == IN_FLIGHT
        untimed = (columns["source"] == _NO_SOURCE) & ~in_flight
        codes, counts = np.unique(columns["reason"][untimed], return_counts=True)
        for code, count in zip(codes, counts, strict=True):
            self._untimed[self._words.lists["reason"][code] or "not known"] += int(count)
        self._totals["operations"] += len(untimed)
        self._totals["replays"] += int((columns["replay"] == 1).sum())
        self._totals["gpu"] += int(np.isin(columns["source"], GPU_CODES).sum())
        self._totals["in flight"] += int(in_flight.sum())

    def finish(self, report: ImportReport, files: int) -> Model:
        """The model of everything that was added; call it once. `report`: of the files' readers."""
        self._sort()
        operations = self._writer.columns("operations")
        offset_ns = self._move_times(operations)
        self._place_ranks(operations)
        comms, members, names = self._registry.tables(self._words)
        instances = self._match(operations)
        self._writer.append("instances", instances)
        self._writer.append("communicators", comms)
        self._writer.append("members", members)
        processes = self._registry.processes
        walls = {r: first for r, first in self._first_ns.items() if not processes[r].own_clock}
        model = Model(
            path=self._folder,
            tables={},
            words=self._words.lists,
            communicator_names=names,
            processes=self._registry.process_rows(walls, self._form.start_error_ns),
            nodes=self._registry.nodes,
            completeness=self._completeness(report, files, instances),
            realtime_offset_ns=offset_ns,
            clocks=solve([0] * max(len(self._registry.nodes), 1)).nodes,
        )
        return self._writer.finish(self._folder, manifest_of(model, ""))

    def _sort(self) -> None:
        """Rows by process, as in every model."""
        ordered = sorted(self._slices, key=lambda process_and_rows: process_and_rows[0])
        if ordered == self._slices:
            return
        mixed, self._writer = self._writer, Writer(self._folder)
        columns, slices, begin = mixed.columns("operations"), [], 0
        for process, part in ordered:
            self._writer.append("operations", {n: values[part] for n, values in columns.items()})
            end = begin + part.stop - part.start
            slices.append((process, slice(begin, end)))
            begin = end
        self._slices = slices
        mixed.discard()

    def _move_times(self, operations: Columns) -> int:
        """Has times begin at 0; returns what to add for the wall clock, 0 where it is unknown."""
        processes = self._registry.processes
        walls = [first for row, first in self._first_ns.items() if not processes[row].own_clock]
        base = min(walls, default=0)
        for row, part in self._slices:
            origin = self._first_ns.get(row, 0) if processes[row].own_clock else base
            for name in TIME_COLUMNS:
                values = operations[name][part]
                values[:] = np.where(values != NONE, values - origin, NONE)
        return base

    def _place_ranks(self, operations: Columns) -> None:
        """Sets global ranks, which are known when all communicators are."""
        global_ranks = self._registry.global_ranks()
        processes = self._registry.processes
        for process, part in self._slices:
            comm = operations["communicator"][part].astype(np.int64)
            rank = operations["rank"][part].astype(np.int64)
            pairs, place = np.unique(np.stack([comm, rank]), axis=1, return_inverse=True)
            ranks = np.array(
                [
                    global_ranks.get((process, int(c), int(r)), processes[process].global_rank)
                    for c, r in pairs.T
                ]
            )
            operations["global_rank"][part] = ranks[place.reshape(-1)]

    def _match(self, operations: Columns) -> Columns:
        """Matches operations across ranks, sets what depends on it, and returns the instances."""
        streams = self._streams.streams()
        rules = rules_of(self._words.lists["function"], self._words.lists["algorithm"])
        instances = Instances(streams, rules)
        parts = [
            _numbered({name: values[part] for name, values in operations.items()})
            for _, part in self._slices
        ]
        for part in parts:
            instances.add(part, self._form.start_error_ns)
        ranks = self._registry.ranks_of_communicators()
        clocks = solve([0] * max(len(self._registry.nodes), 1))
        table, states = instances.table(clocks, self._streams.nodes(), ranks)
        waits = Waits(streams, rules, states)
        for part in parts:
            for name, values in waits.of(part).items():
                part[name][:] = values
        self._count_gaps(streams.kind, streams.length, streams.communicator, ranks, table)
        return table

    def _count_gaps(
        self, kind: Ints, length: Ints, communicator: Ints, ranks: Ints, table: Columns
    ) -> None:
        """Counts numbers between the first and the last that no rank has."""
        calls = kind != PAIRS
        every = np.bincount(communicator[calls], length[calls], minlength=len(ranks))
        seen = np.bincount(table["communicator"][table["form"] == COLLECTIVE], minlength=len(ranks))
        missing = (every - seen).astype(np.int64) * np.maximum(ranks, 1)
        if missing.sum() > 0:
            self._report.lose(_GAPS, int(missing.sum()))

    def _completeness(self, report: ImportReport, files: int, instances: Columns) -> Completeness:
        expected, seen = instances["ranks_expected"], instances["ranks_seen"]
        lost = Counter(report.lost) + Counter(self._report.lost)
        notes = [f"imported from {self._form.title}, {plural(files, 'file')}"]
        notes += [*self._form.limits, *report.notes]
        notes += [f"{count:,} {reason}" for reason, count in lost.most_common()]
        if self._totals["unsized"]:
            notes.append(impossible_sizes(self._totals["unsized"]))
        return Completeness(
            processes_found=len(self._registry.processes),
            processes_expected=self._registry.expected_processes(),
            calls=self._totals["operations"] - self._totals["replays"],
            operations=self._totals["operations"],
            gpu_timed=self._totals["gpu"],
            repaired=0,
            in_flight=self._totals["in flight"],
            untimed=dict(self._untimed.most_common()),
            dropped={},
            stamps={},
            missing_operations=int(np.maximum(expected - seen, 0)[seen > 0].sum()),
            mismatched_instances=int((instances["mismatch"] == 1).sum()),
            notes=notes,
            lost=dict(lost.most_common()),
            drops_counted=False,
        )


def _columns_of(rows: list[Values], words: Vocabulary) -> Columns:
    """Rows as columns: codes for names, NONE for missing values and for too large ones."""
    columns = empty(_KEPT, len(rows))
    given = set().union(*rows)
    for column in _KEPT:
        if column.name not in given:
            continue
        name = column.name
        if column.words:
            codes = {"": NONE} if name != "reason" else {}
            named = [str(row.get(name, "")) for row in rows]
            for text in set(named) - set(codes):
                codes[text] = words.code(name, text)
            columns[name][:] = [codes[text] for text in named]
        else:
            values = np.array([row.get(name, NONE) for row in rows], np.int64)
            columns[name][:] = np.where(values > _LIMITS[name], NONE, values)
    for name, usual in (("form", FORMS[0]), ("source", "none"), ("state", "done"), ("reason", "")):
        missing = columns[name] == NONE
        columns[name][missing] = words.code(name, usual)
    for name in ("replay", "symmetric", "inferred"):
        columns[name][columns[name] == NONE] = 0
    return columns


def _complete_times(columns: Columns, words: Vocabulary) -> None:
    """Sets ends from durations and durations from ends; what runs backwards has no source."""
    start, end, duration = (columns[name] for name in ("start_ns", "end_ns", "duration_ns"))
    has_start, has_end, has_duration = start != NONE, end != NONE, duration != NONE
    lasts = has_start & has_end & ~has_duration
    duration[lasts] = np.maximum(end[lasts] - start[lasts], NONE)
    ends = has_start & has_duration & ~has_end
    end[ends] = start[ends] + duration[ends]
    timed = columns["source"] != _NO_SOURCE
    backwards = timed & has_start & (end != NONE) & (end < start)
    if backwards.any():
        for values in (start, end, duration):
            values[backwards] = NONE
        columns["reason"][backwards] = words.code("reason", IMPOSSIBLE_TIMES)
    columns["source"][timed & (duration == NONE)] = _NO_SOURCE


def _first_time(columns: Columns) -> int:
    """The earliest of all times, NONE without any."""
    times = [columns[name][columns[name] != NONE] for name in TIME_COLUMNS]
    return min((int(values.min()) for values in times if len(values)), default=NONE)


def _numbered(columns: Columns) -> Columns:
    """The columns for matching: operations without a number of their call on the communicator are
    matched by NCCL's own number of the function, like replays.
    """
    by_sequence = (columns["call_order"] == NONE) & (columns["sequence"] != NONE)
    by_sequence &= columns["form"] == COLLECTIVE
    if not by_sequence.any():
        return columns
    return {**columns, "replay": np.where(by_sequence, 1, columns["replay"]).astype(np.int8)}
