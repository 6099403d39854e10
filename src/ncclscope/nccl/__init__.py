"""Facts about NCCL. In: nothing. Out: names, sizes, event bits, releases and their defects."""
