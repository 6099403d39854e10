"""Numbers from a model. In: a model and a selection. Out: frozen dataclasses."""
