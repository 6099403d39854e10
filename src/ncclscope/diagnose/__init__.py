"""Opinions. In: a model, snapshots, samples. Out: findings with evidence and advice."""
