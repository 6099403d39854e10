"""Hangs in an import: dumps that were taken while the job hung, without live pages."""

from collections.abc import Iterator

import numpy as np

from ncclscope.diagnose.finding import CRITICAL, Evidence, Finding
from ncclscope.diagnose.hang.verdict import NEVER_CALLED, NOT_STARTED, STALLED
from ncclscope.humanize import binary_size, ranks_in_words
from ncclscope.ingest.call_stacks import own_frame, stacks_of
from ncclscope.model.model import Model
from ncclscope.model.schema import COLLECTIVE, IN_FLIGHT, NONE

_MOST = 20
_ADVICE = {
    NEVER_CALLED: "look at those ranks' stacks (py-spy dump): they are outside NCCL, or their "
    "program took another path",
    NOT_STARTED: "their GPUs are busy with, or wait for, another kernel",
    STALLED: "look at the links between these ranks; NCCL_DEBUG=INFO and the fabric's counters",
}


def find(model: Model) -> list[Finding]:
    """By communicator the first collective that some rank is in, and which ranks keep it there."""
    ops = model.tables["operations"]
    stuck = np.flatnonzero(
        (ops["state"] == IN_FLIGHT) & (ops["form"] == COLLECTIVE) & (ops["instance"] != NONE)
    )
    findings = []
    for communicator in np.unique(ops["communicator"][stuck])[:_MOST].tolist():
        own = stuck[ops["communicator"][stuck] == communicator]
        first = int(own[np.argmin(ops["call_order"][own])])
        findings.append(_finding(model, communicator, first))
    return findings


def _finding(model: Model, communicator: int, first: int) -> Finding:
    ops, members = model.tables["operations"], model.tables["members"]
    same = np.flatnonzero(ops["instance"] == ops["instance"][first])
    waiting = same[ops["state"][same] == IN_FLIGHT]
    own = members["communicator"] == communicator
    absent = ~np.isin(members["rank"][own], ops["rank"][same])
    culprits = members["global_rank"][own][absent]
    kind = NEVER_CALLED if len(culprits) else STALLED
    if kind == STALLED:
        queued = [row for row in waiting.tolist() if _not_started(model, row)]
        if queued and len(queued) < len(waiting):
            kind, culprits = NOT_STARTED, ops["global_rank"][queued]
    ranks = tuple(sorted({int(rank) for rank in culprits if rank != NONE}))
    name, order = model.communicator_names[communicator], int(ops["call_order"][first])
    function = model.words["function"][int(ops["function"][first])]
    what = f"{name} {function} #{order} ({binary_size(int(ops['size_bytes'][first]))})"
    what_happened = {
        NEVER_CALLED: f"{ranks_in_words(ranks)} never called it",
        NOT_STARTED: f"{ranks_in_words(ranks)} launched it and did not start it on the GPU",
        STALLED: "all ranks that are here are in it and nothing moves",
    }[kind]
    inside = tuple(sorted({int(rank) for rank in ops["global_rank"][waiting] if rank != NONE}))
    return Finding(
        "hang",
        CRITICAL,
        f"hang in {what}: {what_happened}; {ranks_in_words(inside)} in it",
        _ADVICE[kind],
        kind=kind,
        ranks=ranks,
        hosts=(),
        communicators=(name,),
        evidence=(
            Evidence("unfinished when it was dumped", {"order": order, "waiting": list(inside)}),
            *_places(model, waiting.tolist(), ranks if kind == NEVER_CALLED else ()),
        ),
        confidence=0.9 if kind == NEVER_CALLED else 0.7,
        lost_share=1.0,
    )


def _places(model: Model, waiting: list[int], absent: tuple[int, ...]) -> Iterator[Evidence]:
    """Where ranks called what they wait in, and where those that are not in it made their last
    call, by the stacks that Flight Recorder kept.
    """
    ops = model.tables["operations"]
    last = {}
    for rank in absent[:_MOST]:
        own = np.flatnonzero(ops["global_rank"] == rank)
        if len(own):
            last[rank] = int(own[np.argmax(ops["call_ns"][own])])
    stacks = stacks_of(model.path, [*waiting[:_MOST], *last.values()])
    by_place: dict[str, list[int]] = {}
    for row in waiting[:_MOST]:
        if row in stacks:
            by_place.setdefault(stacks[row], []).append(int(ops["global_rank"][row]))
    for stack, ranks in by_place.items():
        text = f"{ranks_in_words(tuple(ranks))} called it at {own_frame(stack)}"
        yield Evidence(text, {"ranks": ranks, "stack": stack.splitlines()})
    for rank, row in last.items():
        if row in stacks:
            name = model.communicator_name(int(ops["communicator"][row]))
            function = model.words["function"][int(ops["function"][row])]
            call = f"the last call of rank {rank} was {function} on {name}"
            text = f"{call}, at {own_frame(stacks[row])}"
            yield Evidence(text, {"ranks": [rank], "stack": stacks[row].splitlines()})


def _not_started(model: Model, row: int) -> bool:
    reason = int(model.tables["operations"]["reason"][row])
    return reason >= 0 and model.words["reason"][reason].startswith("queued")
