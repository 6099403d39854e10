"""Whether a job hangs, and who is to blame, from the last snapshots of its processes."""
