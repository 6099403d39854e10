"""Jobs without a GPU. In: a scenario. Out: processes that call the plugin as NCCL does.

A scenario gives times and faults; nothing of them is measured. Standard library only.
"""
