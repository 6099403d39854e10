"""Developer measurements. `make bench` runs them all and writes docs/measurements.md."""
