"""Facts about NCCL: names, numbers, sizes and defects. Standard library only."""
