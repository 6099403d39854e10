"""What a capture means: communicators, operations, cross-rank instances, one clock."""
