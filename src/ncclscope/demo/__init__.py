"""A real job that comes with the package: NCCL's callbacks on two ranks, as transcripts.

`doctor` and tests play them through the plugin; no GPU is needed.
"""
