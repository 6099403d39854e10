"""Real NCCL on a machine with an NVIDIA GPU: `make gpu`. Several ranks share one GPU."""
