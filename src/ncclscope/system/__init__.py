"""Samples of machines. In: counters of GPUs, network and host. Out: sample files.

Standard library only, because the sampler starts with the job. nvidia-ml-py is used where it is
installed.
"""
