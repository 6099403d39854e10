"""What became of processes that did not end by themselves: asked anew each time that a model is
opened, since a saved one does not notice that they die.
"""

from dataclasses import replace

from ncclscope.capture.liveness import ENDED, FATES, life_in
from ncclscope.capture.reader import is_dataset
from ncclscope.humanize import plural
from ncclscope.model.capture_counts import list_processes
from ncclscope.model.completeness import SIMULATION
from ncclscope.model.match.registry import ProcessRow
from ncclscope.model.model import Model


def with_fates(model: Model) -> Model:
    """The model with a note of those that were killed, still run, or are not heard of. A dataset
    has the note of its capture.
    """
    if is_dataset(model.path):
        return model
    fates: dict[str, list[ProcessRow]] = {}
    for row in model.processes:
        life = ENDED if row.ended else life_in(model.path / row.folder)
        if life != ENDED:
            fates.setdefault(FATES[life], []).append(row)
    told = [
        f"{plural(len(rows), 'process', 'processes')} {fate}: {list_processes(rows)}"
        for fate, rows in sorted(fates.items())
    ]
    if not told:
        return model
    notes = model.completeness.notes
    first = 1 if notes[:1] == [SIMULATION] else 0
    completeness = replace(model.completeness, notes=[*notes[:first], *told, *notes[first:]])
    return replace(model, completeness=completeness)
