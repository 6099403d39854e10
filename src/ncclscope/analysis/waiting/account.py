"""The account of waiting and the critical path of selected operations, for reports."""

from ncclscope.analysis.run import Run
from ncclscope.analysis.selection import Selection
from ncclscope.analysis.waiting.origins import WaitingAccount, account_of, waiting_of
from ncclscope.analysis.waiting.path_edges import selected_path
from ncclscope.analysis.waiting.path_parts import PathPart, path_parts
from ncclscope.model.model import Model


def waiting_account(
    model: Model, selection: Selection
) -> tuple[WaitingAccount | None, tuple[PathPart, ...]]:
    """Where the waiting of the selected operations of the last attempt began, wherever that was,
    and the critical path of the selected time; None where no waiting can be seen.
    """
    waiting = waiting_of(Run(model))
    if waiting is None:
        return None, ()
    parts = path_parts(waiting, selected_path(waiting, selection))
    if selection == Selection():
        return account_of(waiting), parts
    rows = len(model.tables["operations"]["event"])
    chosen = selection.rows(model, slice(0, rows))[waiting.kernels.row]
    return account_of(waiting, chosen), parts
