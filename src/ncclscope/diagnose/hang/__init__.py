"""Hangs. In: snapshots of all ranks. Out: a verdict for each communicator."""
