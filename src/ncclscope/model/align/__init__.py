"""One clock. In: operations of several hosts. Out: clock offsets with their errors."""
