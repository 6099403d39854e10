"""Models on disk. In: a model, or its files. Out: its files, or the model, checked."""
