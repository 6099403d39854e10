"""What an export wrote."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What an export wrote, and what it left out."""

    count: int  # of units
    untimed: int = 0  # selected operations without the times that the format needs: left out
    unit: str = "operation"
    notes: tuple[str, ...] = ()  # advice for the user

    def __add__(self, other: "ExportResult") -> "ExportResult":
        return ExportResult(
            self.count + other.count,
            self.untimed + other.untimed,
            self.unit,
            (*self.notes, *other.notes),
        )
