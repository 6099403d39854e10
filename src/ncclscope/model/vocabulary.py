"""Names as small codes: one list per column of names, shared by all processes of a capture."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.joins import take_small
from ncclscope.model.schema import (
    CONTEXTS,
    FORMS,
    LEVELS,
    NONE,
    ORIGINS,
    PHASE_NAMES,
    SOURCES,
    STAMPS,
    STATES,
)

Codes = npt.NDArray[np.int8]
_MOST = 127  # codes are signed bytes; what comes later is called "other"


class Vocabulary:
    """Lists of names by column (their sort); a name's place in its list is its code."""

    def __init__(self, lists: dict[str, list[str]] | None = None) -> None:
        self.lists: dict[str, list[str]] = lists or {
            "form": list(FORMS),
            "source": list(SOURCES),
            "state": list(STATES),
            "stamp": list(STAMPS),
            "level": list(LEVELS),
            "reason": [""],
            "function": [],
            "datatype": [],
            "algorithm": [],
            "protocol": [],
            "variant": [],
            "phase": list(PHASE_NAMES),
            "context": list(CONTEXTS),
            "origin": list(ORIGINS),
            "dimension": [],
        }
        self._codes = {
            sort: {name: code for code, name in enumerate(names)}
            for sort, names in self.lists.items()
        }

    def code(self, sort: str, name: str) -> int:
        """The code of a name; a new name gets the next one."""
        codes = self._codes[sort]
        if name not in codes:
            if len(codes) >= _MOST:
                return codes["other"]
            fresh = name if len(codes) < _MOST - 1 else "other"
            codes[fresh] = len(self.lists[sort])
            self.lists[sort].append(fresh)
            return codes[fresh]
        return codes[name]

    def occurring_codes(self, sort: str, names: Sequence[str]) -> Codes:
        """Codes of those names that occurred."""
        codes = self._codes[sort]
        return np.array([codes[name] for name in names if name in codes], np.int8)

    def among(self, sort: str, names: Sequence[str], codes: Codes) -> npt.NDArray[np.bool_]:
        """Whether each code is that of one of these names."""
        chosen = np.zeros(_MOST + 1, np.bool_)
        chosen[self.occurring_codes(sort, names)] = True
        return take_small(chosen, codes, 0)


def codes_of(
    words: Vocabulary,
    sort: str,
    seen: npt.NDArray[np.bool_],
    strings: dict[int, str],
    rename: Callable[[str], str] = str,
    numbers: Sequence[str] = (),
) -> Codes:
    """Codes by a process's string ids, and from 256 on by interface v1's numbers. `seen`: which of
    them occur.
    """
    table = np.full(512, NONE, np.int8)
    for place in np.flatnonzero(seen).tolist():
        if 0 < place < 256 and strings.get(place):
            table[place] = words.code(sort, rename(strings[place]))
        elif 256 <= place < 256 + len(numbers):
            table[place] = words.code(sort, numbers[place - 256])
    return table
