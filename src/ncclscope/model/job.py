"""A job whose processes are being decoded: what grows with each of them."""

from dataclasses import dataclass, field

from ncclscope.model.align.bounds import ProxyStepTimes
from ncclscope.model.capture_counts import CaptureCounts
from ncclscope.model.context_tables import ContextTables
from ncclscope.model.engine import ProcessOperations
from ncclscope.model.match.counter_table import CounterTable
from ncclscope.model.match.registry import Registry
from ncclscope.model.rows import ProcessRow
from ncclscope.model.streams import StreamCounter
from ncclscope.model.vocabulary import Vocabulary


@dataclass(slots=True)
class Job:
    """What grows while processes are decoded."""

    words: Vocabulary = field(default_factory=Vocabulary)
    registry: Registry = field(default_factory=Registry)
    streams: StreamCounter = field(default_factory=StreamCounter)
    counters: CounterTable = field(default_factory=CounterTable)
    counts: CaptureCounts = field(default_factory=CaptureCounts)
    rows: list[slice] = field(default_factory=list)  # of operations, by process
    sends: list[ProxyStepTimes] = field(default_factory=list)
    receives: list[ProxyStepTimes] = field(default_factory=list)
    wall_ns: dict[int, int] = field(default_factory=dict)  # by node, wall clock minus monotonic
    context: ContextTables = field(default_factory=ContextTables)
    among_ns: dict[int, int] = field(default_factory=dict)  # by process aligned by operations
    recent: bool = False  # of each process only the end of its log was read

    @property
    def process_rows(self) -> list[ProcessRow]:
        """Rows of `processes`."""
        return self.registry.processes.rows

    def processes(self) -> list[ProcessOperations]:
        """The operations of each process."""
        return [
            ProcessOperations(
                number, row.node, rows.start, rows.stop - rows.start,
                self.among_ns.get(number, row.gpu_clock_error_ns),
            )
            for number, (rows, row) in enumerate(zip(self.rows, self.process_rows, strict=True))
        ]  # fmt: skip
