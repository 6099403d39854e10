"""Answers from a model: pure functions that return data. SQL lies beside its Python."""
