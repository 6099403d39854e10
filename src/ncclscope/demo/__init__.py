"""A real job that comes with the package: its NCCL callbacks, recorded on two ranks, to be played
back without a GPU: what `doctor` and tests play.
"""
