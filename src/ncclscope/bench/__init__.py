"""The verb `bench`. In: a plan of operations and sizes. Out: times of NCCL's calls."""
