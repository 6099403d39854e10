"""Writes captures without a plugin: of real jobs at their own times, and of simulated ones."""

from tests.support.writer.scenario import write_scenario
from tests.support.writer.spec import ALL_KINDS_OF_WORK, Straggler, SyntheticSpec, Work
from tests.support.writer.synthetic import synthetic
from tests.support.writer.transcript import from_transcript
from tests.support.writer.truth import Truth

__all__ = [
    "ALL_KINDS_OF_WORK",
    "Straggler",
    "SyntheticSpec",
    "Truth",
    "Work",
    "from_transcript",
    "synthetic",
    "write_scenario",
]
