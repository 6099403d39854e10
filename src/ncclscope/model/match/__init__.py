"""All ranks together. In: operations of processes. Out: communicators and instances."""
