"""Facts about NCCL: names, numbers, sizes and defects. Nothing goes in; standard library only."""
