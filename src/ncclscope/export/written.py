"""What an export wrote, and what it had to leave out."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Written:
    """How many of its units were written."""

    count: int
    timeless: int = 0  # chosen, but without the times that the form needs
    unit: str = "operation"

    def plus(self, other: "Written") -> "Written":
        """Both together."""
        return Written(self.count + other.count, self.timeless + other.timeless, self.unit)
