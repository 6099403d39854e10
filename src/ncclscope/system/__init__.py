"""The machine beside NCCL: counters of GPUs, network and host, sampled outside of the job.

Standard library only: a sampler stands beside every job that asks for it. nvidia-ml-py is used
where it is installed.
"""
