"""Operations as JSON, one object a line. What is not known is null."""

from pathlib import Path

from ncclscope.analysis.selection import Selection
from ncclscope.export.text import write_text
from ncclscope.model.model import Model, Progress

_OPTIONS = "format json, array false"


def write_jsonl(
    model: Model, chosen: Selection, path: Path, progress: Progress | None = None
) -> int:
    """Writes the chosen operations and returns how many."""
    return write_text(model, chosen, path, _OPTIONS, _OPTIONS, progress)
