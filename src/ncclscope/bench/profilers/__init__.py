"""Comparison of profilers. In: their names. Out: what each records, reports, costs and loses."""
