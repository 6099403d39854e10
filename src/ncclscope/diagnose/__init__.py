"""Findings: what a capture shows to be wrong, in words, with evidence. One module per family."""
