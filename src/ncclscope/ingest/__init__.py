"""Files of other tools. In: logs, dumps and results. Out: the tables of a model."""
