"""Which communicators are peers of each other.

Those of one class have the same name but for numbers, as many ranks, and are all within a host or
all across hosts: their transfers are compared. A role is a class whether it is within a host or
not: the work between its calls is compared.

    tp:0,1 and tp:2,3, each within a host         one class, one role
    pp:0,1 within a host, pp:2,3 across hosts     two classes, one role
"""

import re

import numpy as np

from ncclscope.analysis.distinct import distinct_numbers
from ncclscope.analysis.run import Run
from ncclscope.arrays.types import Bools, Ints


def classes_and_roles(run: Run, communicator: Ints, rank: Ints) -> tuple[Ints, Ints]:
    """By communicator the number of its class, and that of its role. Numbers in names tell parts of
    one kind apart, as in `pp8to4` of those that send and receive, or in `tp0` and `tp1` where no
    rank is in both. `communicator`, `rank`: by operation.
    """
    table = run.model.tables["communicators"]
    ranks, nodes = np.asarray(table["ranks"]).tolist(), np.asarray(table["nodes"]).tolist()
    words = [re.split(r"[:#]", name)[0] for name in run.model.communicator_names]
    plain = [re.sub(r"\d+", "", word) for word in words]
    shapes = list(zip(plain, ranks, [count > 1 for count in nodes], strict=True))
    kinds = {shape: number for number, shape in enumerate(dict.fromkeys(shapes))}
    kind = np.array([kinds[shape] for shape in shapes], np.int64)
    apart = _are_apart(kind, len(kinds), communicator, rank)
    classes: dict[tuple[str, int, bool], int] = {}
    roles: dict[tuple[str, int], int] = {}
    found = []
    for row, word in enumerate(words):
        whole = word if not (run.sending[row] or apart[kind[row]]) else plain[row]
        role = roles.setdefault((whole, ranks[row]), len(roles))
        found.append((classes.setdefault((whole, *shapes[row][1:]), len(classes)), role))
    of_class, of_role = np.array(found, np.int64).reshape(-1, 2).T
    return of_class, of_class if len(roles) == len(classes) else of_role


def _are_apart(kind: Ints, kinds: int, communicator: Ints, rank: Ints) -> Bools:
    """By kind of communicators whether no rank is in two of them."""
    ranks = int(rank.max(initial=0)) + 1
    member = distinct_numbers(communicator.astype(np.int64) * ranks + rank)
    of_kind = kind[member // ranks] * ranks + member % ranks
    return np.asarray(np.bincount(of_kind, minlength=kinds * ranks).reshape(kinds, -1).max(1) < 2)
