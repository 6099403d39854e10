"""Simulated jobs: real processes with the real plugin, on a simulated NCCL and GPU.

A scenario gives times and faults; nothing of them is measured. Standard library only.
"""
