"""A comparison of training runs as an HTML page."""

from html import escape

from ncclscope.bench.training.files import TrainingRun, text_lines
from ncclscope.report.html import page

_WIDTH = 220  # characters


def as_html(run: TrainingRun) -> str:
    """The page: what the terminal shows."""
    lines = "\n".join(text_lines(run, _WIDTH))
    return page("NCCL profilers in training", f"<h1>Training</h1><pre>{escape(lines)}</pre>")
