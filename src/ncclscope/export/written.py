"""What an export wrote, and what it had to leave out."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Written:
    """Numbers of operations."""

    operations: int
    timeless: int = 0  # chosen, but without any time: a timeline has no place for them

    def plus(self, other: "Written") -> "Written":
        """Both together."""
        return Written(self.operations + other.operations, self.timeless + other.timeless)
