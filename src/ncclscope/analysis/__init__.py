"""Questions to a model: pure functions that return data. SQL lies beside the Python that asks."""
