"""What this host's process table says of a recorded process. Standard library only."""

import os
from pathlib import Path

from ncclscope.capture.header import Header
from ncclscope.capture.salvage import boot_id

RUNS, STOPPED, GONE = "runs", "is stopped", "is gone"


def seen_here(header: Header) -> str | None:
    """One of the words above; None where the process is of another host, or nobody can tell."""
    identity = header.identity
    try:
        here = boot_id()
        namespace = str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return None
    if identity.get("boot_id") != here or identity.get("pid_namespace") != namespace:
        return None
    try:
        fields = Path(f"/proc/{header.pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return GONE
    except OSError:  # /proc is hidden, or no file can be opened just now
        return None
    if len(fields) < 20:
        return None
    if fields[19] != identity.get("start_ticks") or fields[0] in "ZX":
        return GONE
    return STOPPED if fields[0] in "Tt" else RUNS
