"""What makes the model of a capture."""

import sys
from functools import partial
from typing import TYPE_CHECKING

from ncclscope.cli.arguments.engine import HERE
from ncclscope.errors import UsageError

if TYPE_CHECKING:
    from ncclscope.model.engine import Engines


def engine_on(on: str) -> "Engines | None":
    """What makes models there; None: this machine."""
    if on == HERE:
        return None
    tell = partial(print, file=sys.stderr)
    # Most readers need no cluster.
    if on == "slurm" or on.startswith("slurm:"):
        from ncclscope.engines.slurm import slurm_engine

        return partial(slurm_engine, on, tell=tell)
    if not on.startswith(("tcp://", "tls://", "ucx://", "file:")):
        message = f"--on {on} names no cluster"
        raise UsageError(message, "Use here, slurm, tcp://HOST:PORT or file:SCHEDULER.json")
    from ncclscope.engines.dask_cluster import cluster_engine

    return partial(cluster_engine, on, tell=tell)
