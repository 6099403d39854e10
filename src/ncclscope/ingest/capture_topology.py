"""The topology of a capture: as it was saved, or from NCCL's logs in it."""

from pathlib import Path

from ncclscope.model.topology import FILE, Topology, read_topology

_LOGS = "debug.*"  # as `ncclscope run --nccl-debug` names them in a capture


def topology_of(path: Path) -> Topology:
    """The topology of a capture, from NCCL's logs in it, or of an import, as it was saved."""
    saved = path / FILE
    if saved.is_file():
        return read_topology(saved)
    logs = [log for log in sorted(path.glob(_LOGS)) if log.is_file() and not log.is_symlink()]
    if not logs:
        return Topology()
    from ncclscope.ingest.nccl_log_topology import topology_of_ends  # most captures have no log

    return topology_of_ends(logs)
