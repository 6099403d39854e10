"""Names of processes for the lanes: from the capture's files, then from the model."""

from pathlib import Path

import numpy as np

from ncclscope.capture.liveness import FATES, UNHEARD, life_in
from ncclscope.model.model import Model, process_rows
from ncclscope.model.schema import NONE
from ncclscope.web.callback_index import ProcessFacts
from ncclscope.web.scene import CommunicatorLabel, ProcessLabels, SceneClock

# Short enough for the head of a lane. "": a dataset has no files that tell.
_FATES = FATES | {UNHEARD: "not heard of any more", "": "ended abruptly, or still running"}


def _fate(folder: Path, ended: bool) -> str:
    """What became of a process that did not end by itself, in a few words."""
    return "" if ended else _FATES.get(life_in(folder), "")


def labels_from_files(processes: list[ProcessFacts], capture: Path) -> list[ProcessLabels]:
    """Labels by the processes' own files, on the wall clock."""
    first = int(processes[0]["wall_ns"]) if processes else 0
    labels = []
    for facts in processes:
        rank = NONE if facts["rank"] is None else int(facts["rank"])
        comms = {
            int(comm["number"]): CommunicatorLabel(
                NONE,
                comm["name"] or f"communicator {comm['id']}",
                int(comm["rank"]),
                int(comm["ranks"]),
                rank,
            )
            for comm in facts["communicators"]
        }
        labels.append(
            ProcessLabels(
                host=facts["host"],
                node="/".join(facts["node"]),
                node_note="",
                folder=facts["folder"],
                pid=int(facts["pid"]),
                gpu="",
                fate=_fate(capture / facts["folder"], bool(facts["ended"])),
                rank=rank,
                last_ns=int(facts["last_ns"]),
                threads=facts["threads"],
                communicators=comms,
                clock=SceneClock(int(facts["wall_ns"]) - first),
            )
        )
    return labels


def labels_from_model(model: Model, by_folder: dict[str, ProcessFacts]) -> list[ProcessLabels]:
    """Labels by the model. `by_folder`: facts from the files, which a dataset does not have."""
    labels = []
    for number, row in enumerate(model.processes):
        facts = by_folder.get(row.folder)
        clock = SceneClock(clock=model.clocks[row.node] if row.node < len(model.clocks) else None)
        labels.append(
            ProcessLabels(
                host=row.host,
                node=f"h{row.node}",
                node_note="",
                folder=row.folder,
                pid=row.pid,
                gpu=row.gpu,
                fate=_fate(model.path / row.folder, row.ended),
                rank=row.global_rank,
                last_ns=int(facts["last_ns"]) if facts else _last_ns(model, number),
                threads=facts["threads"] if facts else {},
                communicators=_communicators(model, number, facts, clock),
                clock=clock,
            )
        )
    return labels


def _communicators(
    model: Model, process: int, facts: ProcessFacts | None, clock: SceneClock
) -> dict[int, CommunicatorLabel]:
    """Communicators of a process by their number in it; -2, -3 … where there are no files.

    The files and the model know a communicator by the time at which it was opened.
    """
    members = _members(model, process)
    labels: dict[int, CommunicatorLabel] = {}
    for comm in facts["communicators"] if facts else ():
        opened_ns = clock.to_scene(int(comm["opened_ns"]))
        nearest = min(members, key=lambda member: abs(member[0] - opened_ns), default=None)
        if nearest is not None:
            labels[int(comm["number"])] = nearest[1]
    for _, label in members:
        if label not in labels.values():
            labels[-2 - label.row] = label
    return labels


def _members(model: Model, process: int) -> list[tuple[int, CommunicatorLabel]]:
    """When each communicator of a process was opened, and its label."""
    members, comms = model.tables["members"], model.tables["communicators"]
    labels = []
    for place in np.flatnonzero(members["process"] == process).tolist():
        row = int(members["communicator"][place])
        label = CommunicatorLabel(
            row,
            model.communicator_names[row],
            int(members["rank"][place]),
            int(comms["ranks"][row]),
            int(members["global_rank"][place]),
        )
        labels.append((int(members["opened_ns"][place]), label))
    return labels


def _last_ns(model: Model, process: int) -> int:
    """The last known time of a process's operations."""
    operations = model.tables["operations"]
    first, last = process_rows(operations, process)
    names = ("end_ns", "launch_end_ns", "call_end_ns", "enqueue_ns")
    return max(int(operations[name][first:last].max(initial=0)) for name in names)
