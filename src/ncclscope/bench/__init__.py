"""`ncclscope bench`: NCCL's operations measured call by call, on libnccl directly."""
