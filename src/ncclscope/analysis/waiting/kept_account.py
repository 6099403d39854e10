"""The account of waiting of a whole run as it is kept beside the saved model.

It is most of what a second report takes. Of a part of the run it is made anew. Analyses are made of
a model alone: commands hand this to them.
"""

from typing import Any

from ncclscope.analysis.selection import Selection
from ncclscope.analysis.waiting.account import AccountOf, Answer, waiting_account
from ncclscope.analysis.waiting.origins import KINDS, Origin, RankWaiting, WaitingAccount
from ncclscope.analysis.waiting.path_parts import PathPart
from ncclscope.model.model import Model
from ncclscope.model.store.checksums import is_number, is_text
from ncclscope.model.store.kept_answers import keep_answer, kept_answer

_NAME = "account"
# Rises when the account of a run changes, its windows included: kept ones are made again then.
_VERSION = 10
_SUMS = ("total_ns", "structure_ns", "start_up_ns", "below_clock_error_ns", "unknown_ns")
_START_UP = "start-up"  # of a path


def kept_waiting_account(
    model: Model, selection: Selection, make: AccountOf = waiting_account
) -> Answer:
    """What `waiting_account` returns; that of a whole run is kept beside its saved model. `make`:
    makes it where it is not kept.
    """
    if selection != Selection():
        return make(model, selection)
    kept = kept_account(model)
    if kept is not None:
        return kept
    answer = make(model, selection)
    keep_account(model, answer)
    return answer


def kept_account(model: Model) -> Answer | None:
    """The account and the critical path of a whole run; None where they are not kept."""
    answer = kept_answer(model, _NAME, _VERSION)
    try:
        return None if answer is None else _answer(answer, len(model.communicator_names))
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def keep_account(model: Model, answer: Answer) -> None:
    """Keeps the account and the critical path of a whole run."""
    account, path = answer
    parts = [[getattr(part, name) for name in PathPart.__slots__] for part in path]
    record: dict[str, Any] = {"account": None, "path": parts}
    if account is not None:
        record["account"] = {
            **{name: getattr(account, name) for name in (*_SUMS, "unseen")},
            "origins": [
                [getattr(one, name) for name in Origin.__slots__] for one in account.origins
            ],
            "ranks": [
                [getattr(row, name) for name in RankWaiting.__slots__] for row in account.ranks
            ],
        }
    keep_answer(model, _NAME, _VERSION, record)


def _answer(record: Any, communicators: int) -> Answer:
    path = tuple(_part(values, communicators) for values in record["path"])
    kept = record["account"]
    if kept is None:
        return None, path
    unseen = kept["unseen"]
    _check(all(map(is_text, unseen)) and all(map(is_number, unseen.values())))
    _check(all(is_number(kept[name]) for name in _SUMS))
    return WaitingAccount(
        origins=tuple(_origin(values, communicators) for values in kept["origins"]),
        ranks=tuple(_rank(values) for values in kept["ranks"]),
        unseen=dict(unseen),
        **{name: kept[name] for name in _SUMS},
    ), path


def _origin(values: Any, communicators: int) -> Origin:
    kind, rank, communicator, *numbers = values
    _check(kind in KINDS.values() and all(map(is_number, numbers)))
    _check_whose(rank, communicator, communicators)
    return Origin(*values)


def _part(values: Any, communicators: int) -> PathPart:
    kind, rank, communicator, function, *numbers = values
    _check(kind in (*KINDS.values(), _START_UP) and is_text(function))
    _check(all(map(is_number, numbers)))
    _check_whose(rank, communicator, communicators)
    return PathPart(*values)


def _rank(values: Any) -> RankWaiting:
    _check(all(map(is_number, values)))
    return RankWaiting(*values)


def _check_whose(rank: Any, communicator: Any, communicators: int) -> None:
    _check(rank is None or is_number(rank))
    _check(communicator is None or is_number(communicator))
    _check(communicator is None or 0 <= communicator < communicators)


def _check(fine: bool) -> None:
    if not fine:
        raise ValueError(_NAME)
