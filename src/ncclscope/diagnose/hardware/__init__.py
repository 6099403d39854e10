"""Machines. In: system samples. Out: what they show of GPUs, network, hosts."""
