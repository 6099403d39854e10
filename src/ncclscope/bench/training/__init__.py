"""Training jobs below each profiler. In: a model's name. Out: step times, calls and their share."""
