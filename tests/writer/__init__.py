"""Writes captures without a plugin: of real jobs at their own times, and of simulated ones."""

from tests.writer.transcript import from_transcript

__all__ = ["from_transcript"]
