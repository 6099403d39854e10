"""Opinions. In: a model, snapshots, samples. Out: findings with evidence and advice."""

SEVERITIES = ("info", "warning", "critical")  # here: `diagnose --help` needs nothing else
