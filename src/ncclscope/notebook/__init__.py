"""Captures in notebooks. In: a model. Out: tables for SQL, answers of the verbs as data, plots."""
