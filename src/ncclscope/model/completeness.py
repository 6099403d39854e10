"""What was seen against what must exist: one record that opens every output."""

from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True, repr=False)
class Completeness:
    """Counts over all processes of a capture."""

    processes_found: int
    processes_expected: int
    calls: int
    operations: int
    gpu_timed: int
    repaired: int
    in_flight: int
    untimed: dict[str, int]  # by reason
    dropped: dict[str, int]  # events, by reason
    stamps: dict[str, int]  # works by what became of their stamps
    missing_operations: int  # of instances: sequence gaps across ranks
    mismatched_instances: int  # ranks that disagree
    notes: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether nothing that must exist is missing."""
        return (
            self.processes_found >= self.processes_expected
            and not self.dropped
            and not self.missing_operations
        )

    def line(self) -> str:
        """All of it in one line of words."""
        words = [
            f"{self.processes_found} of {self.processes_expected} processes",
            f"{self.calls:,} calls",
            f"{self.operations:,} operations",
        ]
        if self.operations:
            words.append(f"{100 * self.gpu_timed / self.operations:.4g} % timed by the GPU")
        if self.repaired:
            words.append(f"{self.repaired:,} repaired")
        untimed = sum(self.untimed.values())
        if untimed:
            words.append(f"{untimed:,} untimed")
        if self.in_flight:
            words.append(f"{self.in_flight:,} in flight")
        lost = sum(self.dropped.values())
        words.append(f"{lost:,} events dropped" if lost else "nothing dropped")
        if self.missing_operations:
            words.append(f"{self.missing_operations:,} missing on some ranks")
        if self.mismatched_instances:
            words.append(f"{self.mismatched_instances:,} on which ranks disagree")
        return ", ".join(words)

    def __repr__(self) -> str:
        return self.line()

    def as_json(self) -> dict[str, object]:
        """The same for programs."""
        record = asdict(self)
        found, expected = record.pop("processes_found"), record.pop("processes_expected")
        return {"processes": {"found": found, "expected": expected}, **record}
