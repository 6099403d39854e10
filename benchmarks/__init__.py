"""Developer measurements. `make bench` runs them all and writes the tables in docs/measurements."""
