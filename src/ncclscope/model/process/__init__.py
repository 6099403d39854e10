"""One process. In: its events. Out: its operations, on its own clock."""
