"""Jobs with known truth, as captures: an event simulation, and real processes on the simulated NCCL."""
