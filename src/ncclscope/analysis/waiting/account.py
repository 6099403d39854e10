"""The account of waiting of selected operations, for reports."""

from ncclscope.analysis.run import Run
from ncclscope.analysis.selection import Selection
from ncclscope.analysis.waiting.origins import WaitingAccount, account_of, waiting_of
from ncclscope.model.model import Model


def waiting_account(model: Model, selection: Selection) -> WaitingAccount | None:
    """Where the waiting of the selected operations of the last attempt began, wherever that was;
    None where no waiting can be seen.
    """
    waiting = waiting_of(Run(model))
    if waiting is None:
        return None
    if selection == Selection():
        return account_of(waiting)
    rows = len(model.tables["operations"]["event"])
    return account_of(waiting, selection.rows(model, slice(0, rows))[waiting.kernels.row])
