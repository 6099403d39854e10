"""Writes captures without a plugin: of real jobs at their own times, and of simulated ones."""

from tests.writer.scenario import write_scenario
from tests.writer.spec import Straggler, SyntheticSpec, Work
from tests.writer.synthetic import synthetic
from tests.writer.transcript import from_transcript
from tests.writer.truth import Truth

__all__ = [
    "Straggler",
    "SyntheticSpec",
    "Truth",
    "Work",
    "from_transcript",
    "synthetic",
    "write_scenario",
]
