"""Exports: the model's tables in files that other programs read."""
