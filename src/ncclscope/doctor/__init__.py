"""The verb `doctor`. In: this machine. Out: what would keep NCCL from being recorded."""
