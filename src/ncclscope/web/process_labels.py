"""Who the processes of a scene are: by the model, or by the capture's files before there is one."""

from pathlib import Path
from typing import Any

import numpy as np

from ncclscope.capture.liveness import FATES, UNHEARD, life_in
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE
from ncclscope.web.scene import Known, KnownCommunicator, Shift

Who = dict[str, Any]  # what store.who_is tells of a process
# As short as a lane's head; "": a dataset has no files that tell.
_FATES = FATES | {UNHEARD: "not heard of any more", "": "killed or still running"}


def _fate(folder: Path, ended: bool) -> str:
    """What became of a process that did not end by itself, in a few words."""
    return "" if ended else _FATES.get(life_in(folder), "")


def known_by_files(told: list[Who], capture: Path) -> list[Known]:
    """Processes as their own files name them, on the wall clock."""
    first = int(told[0]["wall_ns"]) if told else 0
    out = []
    for who in told:
        rank = NONE if who["rank"] is None else int(who["rank"])
        comms = {
            int(comm["number"]): KnownCommunicator(
                NONE,
                comm["name"] or f"communicator {comm['id']}",
                int(comm["rank"]),
                int(comm["ranks"]),
                rank,
            )
            for comm in who["communicators"]
        }
        shift = Shift(int(who["wall_ns"]) - first)
        out.append(
            Known(
                host=who["host"],
                node="/".join(who["node"]),
                node_note="",
                folder=who["folder"],
                pid=int(who["pid"]),
                gpu="",
                fate=_fate(capture / who["folder"], bool(who["ended"])),
                rank=rank,
                last_ns=int(who["last_ns"]),
                threads=who["threads"],
                communicators=comms,
                shift=shift,
            )
        )
    return out


def known_by_model(model: Model, told: dict[str, Who]) -> list[Known]:
    """Processes as the model names them. `told`: by folder, what their files tell."""
    out = []
    for number, row in enumerate(model.processes):
        who = told.get(row.folder)
        clock = model.clocks[row.node] if row.node < len(model.clocks) else None
        shift = Shift(clock=clock)
        members = _members(model, number)
        found: dict[int, KnownCommunicator] = {}
        for comm in who["communicators"] if who else ():
            opened = shift.to_scene(int(comm["opened_ns"]))
            nearest = min(members, key=lambda one: abs(one[0] - opened), default=None)
            if nearest is not None:
                found[int(comm["number"])] = nearest[1]
        for _, comm in members:  # a dataset has no files that tell
            if comm not in found.values():
                found[-2 - comm.row] = comm
        out.append(
            Known(
                host=row.host,
                node=f"h{row.node}",
                node_note="",
                folder=row.folder,
                pid=row.pid,
                gpu=row.gpu,
                fate=_fate(model.path / row.folder, row.ended),
                rank=row.global_rank,
                last_ns=int(who["last_ns"]) if who else _last_ns(model, number),
                threads=who["threads"] if who else {},
                communicators=found,
                shift=shift,
            )
        )
    return out


def _members(model: Model, process: int) -> list[tuple[int, KnownCommunicator]]:
    """(when it was opened, communicator) of a process."""
    members, comms = model.tables["members"], model.tables["communicators"]
    mine = np.flatnonzero(members["process"] == process)
    out = []
    for place in mine.tolist():
        row = int(members["communicator"][place])
        told = KnownCommunicator(
            row,
            model.communicator_names[row],
            int(members["rank"][place]),
            int(comms["ranks"][row]),
            int(members["global_rank"][place]),
        )
        out.append((int(members["opened_ns"][place]), told))
    return out


def _last_ns(model: Model, process: int) -> int:
    """The last time that any operation of a process tells."""
    operations = model.tables["operations"]
    first, last = np.searchsorted(operations["process"], (process, process + 1)).tolist()
    names = ("end_ns", "launch_end_ns", "call_end_ns", "enqueue_ns")
    return max(int(operations[name][first:last].max(initial=0)) for name in names)
