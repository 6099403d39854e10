"""Steps, phases and modules of all processes together, and the columns of operations for them."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.types import Ints
from ncclscope.model.column_files import write_columns
from ncclscope.model.match.process_table import ToReference
from ncclscope.model.model import Training
from ncclscope.model.process.decoded_process import DecodedProcess
from ncclscope.model.schema import CONTEXT_COLUMNS, NONE, OPERATIONS, Columns, empty
from ncclscope.model.store.saved_model import Writer

_MOST_FAILURES = 5


@dataclass(slots=True)
class ContextTables:
    """Grows process by process."""

    modules: dict[str, int] = field(default_factory=dict)  # rows by name
    _with_context: set[int] = field(default_factory=set)  # processes
    _tables: list[tuple[str, int, int, Columns]] = field(default_factory=list)
    _training: dict[str, str] = field(default_factory=dict)
    _parameters: int = 0
    _streams: dict[str, int] = field(default_factory=dict)
    _failures: dict[str, None] = field(default_factory=dict)
    _kernel_files: list[str] = field(default_factory=list)

    def add(self, decoded: DecodedProcess, process: int, node: int) -> npt.NDArray[np.int32]:
        """Adds a process; returns the rows of its modules."""
        job = decoded.job
        self._training = self._training or job.facts
        self._parameters = max(self._parameters, job.parameters)
        if job.compute_stream >= 0:
            self._streams[str(process)] = job.compute_stream
        self._failures |= dict.fromkeys(job.failures)
        for kernels in job.kernels:
            if kernels.name:
                self._kernel_files.append(f"{decoded.process.folder}/{kernels.name}")
            else:
                self._failures[f"kernels: {kernels.why}"] = None
        context = decoded.context
        if context is None:
            return np.empty(0, np.int32)
        self._with_context.add(process)
        for table in ("steps", "phases"):
            self._tables.append((table, process, node, getattr(context, table)))
        rows = [self.modules.setdefault(name, len(self.modules)) for name in context.modules]
        return np.array(rows, np.int32)

    def complete_columns(self, writer: Writer, rows_of: list[slice]) -> None:
        """Writes NONE for processes without context where others have it: the columns then have
        files, and what nobody wrote in them would be 0.
        """
        if not self._with_context:
            return
        columns = [column for column in OPERATIONS if column.name in CONTEXT_COLUMNS]
        for process, rows in enumerate(rows_of):
            if process not in self._with_context and rows.stop > rows.start:
                nothing = empty(columns, rows.stop - rows.start)
                write_columns(writer.folder, "operations", rows.start, nothing, columns)

    def append_tables(
        self, writer: Writer, operations: Ints | None, to_reference: ToReference
    ) -> None:
        """Writes the tables, with times on the one clock. `operations`: how many, by module."""
        for table, process, node, columns in self._tables:
            moved = dict(columns)
            moved["process"] = np.full(len(columns["step"]), process, np.int32)
            for name in ("start_ns", "end_ns"):
                times = to_reference(node, columns[name])
                moved[name] = np.where(columns[name] == NONE, NONE, times)
            writer.append(table, moved)
        if operations is not None:
            writer.append("modules", {"operations": operations})

    def training(self) -> Training:
        """What the program said about itself."""
        return Training(
            torch=self._training.get("torch", ""),
            device=self._training.get("device", ""),
            parameters=self._parameters,
            compute_streams=self._streams,
            failures=list(self._failures)[:_MOST_FAILURES],
            kernel_files=self._kernel_files,
        )
