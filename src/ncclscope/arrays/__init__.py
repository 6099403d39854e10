"""Compiled loops without meaning. In: arrays of numbers. Out: joins, intervals, columns."""
