"""One process: from its events to its operations, in its own numbers and on its own clock."""
