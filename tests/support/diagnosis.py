"""Findings of a whole capture, as `ncclscope diagnose` makes them."""

from pathlib import Path

from ncclscope.diagnose.diagnosis import Diagnosis, diagnose
from ncclscope.model.build import open_model
from ncclscope.snapshot.process import unfinished_snapshots


def diagnose_capture(capture: Path) -> Diagnosis:
    """All findings of a capture."""
    model = open_model(capture)
    return diagnose(model, unfinished_snapshots(model))
