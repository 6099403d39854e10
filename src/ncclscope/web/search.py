"""Search for operations: `allreduce rank:3 >1M >20ms`.

An operation must match all terms. The single-file page has the same search in TypeScript
(web/src/search.ts), made of the tables here; a test compares their answers.
"""

import re

import numpy as np

from ncclscope.arrays.types import Bools
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE, STATES
from ncclscope.web.bar_details import Json
from ncclscope.web.lookup import Lookup
from ncclscope.web.operation_rows import CAPTURED_STATE
from ncclscope.web.queries import MOST_MATCHES, first_operations

LONGEST = 200  # letters
# A regular expression of Python and of JavaScript: key and value, or a comparison, or a word.
TERM = (
    r"(rank|seq|comm|order|op|state|source|peer)[:=](\S+)"
    r"|([<>])([0-9]+(?:\.[0-9]+)?)(\S*)"
    r"|(\S+)"
)
_OPERATION = "operation"  # an operation's number, as exports have it
# Keys whose value is a number: column of `operations`.
NUMBER_KEYS = {
    "rank": "global_rank", "seq": "sequence", "order": "call_order", "op": _OPERATION,
    "peer": "peer",
}  # fmt: skip
# Columns with names; a word without a key is looked for in all of them, and in communicators.
NAME_COLUMNS = ("function", "datatype", "state", "source", "algorithm", "protocol")
SIZE_UNITS = {
    "": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30,
    "gb": 1 << 30,
}  # fmt: skip
TIME_UNITS_NS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9}
_NO_NUMBER = -2  # no column has it
_TERM = re.compile(TERM)


def search(lookup: Lookup, text: str) -> Json:
    """The number of operations that match all terms, and the first of them."""
    model = lookup.scene.model
    terms = list(_TERM.finditer(text))
    if model is None or not terms:
        return {"count": 0, "matches": []}
    mask = np.asarray(model.tables["operations"]["state"]) != STATES.index(CAPTURED_STATE)
    for term in terms:
        mask &= _matches(model, term)
    rows = np.flatnonzero(mask)
    return {"count": len(rows), "matches": first_operations(lookup, model, rows, MOST_MATCHES)}


def _matches(model: Model, term: re.Match[str]) -> Bools:
    """Which operations match one term."""
    operations = model.tables["operations"]
    key, value, sign, limit, unit, word = term.groups()
    if sign:
        return _compare(model, sign, float(limit), unit.lower())
    if key in NUMBER_KEYS:
        number = int(value) if re.fullmatch("[0-9]{1,17}", value) else _NO_NUMBER
        column = NUMBER_KEYS[key]
        if column == _OPERATION:
            return np.asarray(np.arange(len(operations["process"])) == number)
        return np.asarray(np.equal(operations[column], number))
    text = str(value or word).lower()
    mask = np.zeros(len(operations["process"]), np.bool_)
    if key in (None, "comm"):
        names = enumerate(model.communicator_names)
        rows = [row for row, name in names if text in name.lower()]
        mask |= np.isin(operations["communicator"], rows)
    for column in () if key == "comm" else (key,) if key else NAME_COLUMNS:
        codes = [code for code, name in enumerate(model.words[column]) if text in name.lower()]
        mask |= np.isin(operations[column], codes)
    return mask


def _compare(model: Model, sign: str, limit: float, unit: str) -> Bools:
    """Which operations are larger or longer than a limit, or smaller or shorter."""
    operations = model.tables["operations"]
    if unit in SIZE_UNITS:
        values, limit = operations["size_bytes"], limit * SIZE_UNITS[unit]
    elif unit in TIME_UNITS_NS:
        values, limit = operations["duration_ns"], limit * TIME_UNITS_NS[unit]
    else:
        return np.zeros(len(operations["process"]), np.bool_)
    return np.asarray((values != NONE) & ((values > limit) if sign == ">" else (values < limit)))
