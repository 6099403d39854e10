"""Counters of GPUs, network and host, sampled while a job runs, in a process of their own.

Standard library only, because the sampler starts with the job. nvidia-ml-py is used where it is
installed.
"""
