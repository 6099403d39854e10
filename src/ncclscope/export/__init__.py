"""Files for other programs. In: a model and a selection. Out: traces, tables, logs."""
