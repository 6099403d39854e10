"""Whether a recorded process still lives, and how that is known. Standard library only."""

import time
from pathlib import Path

from ncclscope.capture import process_table
from ncclscope.capture.header import Header
from ncclscope.capture.housekeeping import SILENCE_S, header_in, heartbeat, identity_of
from ncclscope.capture.process_table import seen_here
from ncclscope.capture.salvage import boot_id

ALIVE, ENDED, DEAD, STOPPED, UNHEARD = "alive", "ended", "dead", "stopped", "unheard"
# What became of a process that did not end by itself, by its liveness; "": its files are not here.
FATES = {
    DEAD: "ended abruptly",  # killed, or left by _exit: nobody can tell
    ALIVE: "still running",
    STOPPED: "stopped by a signal",
    UNHEARD: f"silent for over {SILENCE_S:.0f} s on another host, dead or cut off from here",
    "": "ended abruptly or still running then: their files are not in this capture",
}
# How a process of this host was seen.
RUNS_HERE = f"its process {process_table.RUNS}"
STOPPED_HERE = f"its process {process_table.STOPPED}"
_SEEN = {process_table.RUNS: ALIVE, process_table.STOPPED: STOPPED, process_table.GONE: DEAD}
_SILENCE_NS = int(SILENCE_S * 1e9)


def life_of(
    header: Header, ended: bool, heard_ns: int, now_ns: int, folder: Path
) -> tuple[str, str]:
    """One of the words above, and how that is known. `heard_ns`, `now_ns`: wall clock."""
    if ended:
        return ENDED, "it exited by itself"
    here = seen_here(header)
    if here is not None:
        return _SEEN[here], f"its process {here}"
    if (folder / "arena").exists():
        return DEAD, "its shared memory was left behind"
    silent_ns = now_ns - heard_ns
    if silent_ns <= _SILENCE_NS:
        return ALIVE, "it writes its live page"
    return UNHEARD, f"it has not been heard of for {silent_ns / 1e9:,.0f} s"


def life_in(folder: Path) -> str:
    """The liveness of the process that wrote a folder; "" where its files are gone."""
    header = header_in(folder)
    if header is None:
        return ""
    beat = heartbeat(folder)
    heard_ns = int(beat[0] * 1e9) if beat else header.start_realtime_ns
    return life_of(header, bool(beat and beat[1]), heard_ns, time.time_ns(), folder)[0]


def counts_end_early(folder: Path, ended: bool) -> bool:
    """Whether the counts of a process end at its last heartbeat: it is gone, did not write its end,
    and its memory was its own or has been deleted. False where its memory may be on another host.
    """
    if ended or (folder / "arena").exists() or life_in(folder) in (ALIVE, STOPPED, ""):
        return False
    identity = identity_of(folder)
    arena = identity.get("arena")
    if arena:
        return identity.get("boot_id") == boot_id() and not Path(arena).exists()
    return arena is not None
