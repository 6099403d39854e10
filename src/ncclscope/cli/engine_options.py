"""The machines that decode a capture."""

import sys
from functools import partial

from ncclscope.cli.arguments.engine import HERE
from ncclscope.errors import UsageError
from ncclscope.model.decode_pool import Decoders, decoders


def decoders_on(on: str) -> Decoders:
    """What decodes process folders there."""
    if on == HERE:
        return decoders
    tell = partial(print, file=sys.stderr)
    # Most readers need no cluster.
    if on == "slurm" or on.startswith("slurm:"):
        from ncclscope.engines.slurm import slurm_decoders

        return partial(slurm_decoders, on, tell=tell)
    if not on.startswith(("tcp://", "tls://", "ucx://", "file:")):
        message = f"--on {on} names no cluster"
        raise UsageError(message, "Use here, slurm, tcp://HOST:PORT or file:SCHEDULER.json")
    from ncclscope.engines.dask_cluster import cluster_decoders

    return partial(cluster_decoders, on, tell=tell)
