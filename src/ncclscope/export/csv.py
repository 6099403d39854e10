"""Operations as CSV with a line of headings. What is not known is empty."""

from pathlib import Path

from ncclscope.analysis.selection import Selection
from ncclscope.export.text import write_text
from ncclscope.model.model import Model, Progress


def write_csv(model: Model, chosen: Selection, path: Path, progress: Progress | None = None) -> int:
    """Writes the chosen operations and returns how many."""
    return write_text(
        model, chosen, path, "format csv, header false", "format csv, header true", progress
    )
