"""What a capture means. In: processes as arrays. Out: tables of operations on one clock."""
