"""One clock for all nodes: what bounds the differences of their clocks, and where they lie."""
