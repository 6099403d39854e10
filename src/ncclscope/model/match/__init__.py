"""All processes together: ranks, attempts, communicators, and operations that belong together."""
