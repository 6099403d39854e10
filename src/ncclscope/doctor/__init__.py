"""What could keep NCCL from being recorded on this machine. Standard library only."""
