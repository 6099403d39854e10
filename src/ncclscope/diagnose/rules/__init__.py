"""One module per family. In: a rule context. Out: findings in sentences."""
