"""Jobs that only simulate NCCL and a GPU: real processes, real bytes, the real plugin; times and
faults by a scenario. Nothing of them is measured. Standard library only.
"""
