"""Names as small codes: one list for each sort of name, shared by all processes of a capture."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.joins import take_small
from ncclscope.model.schema import FORMS, LEVELS, NONE, SOURCES, STAMPS, STATES

Codes = npt.NDArray[np.int8]
_MOST = 127  # codes are signed bytes; what comes later is called "other"


class Vocabulary:
    """Lists of names by sort; a name's place is its code."""

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
        }
        self._codes = {
            sort: {name: code for code, name in enumerate(names)}
            for sort, names in self.lists.items()
        }

    def code(self, sort: str, name: str) -> int:
        """The code of a name, a new one where it is new."""
        codes = self._codes[sort]
        if name not in codes:
            if len(codes) >= _MOST:
                return codes["other"]
            fresh = name if len(codes) < _MOST - 1 else "other"
            codes[fresh] = len(self.lists[sort])
            self.lists[sort].append(fresh)
            return codes[fresh]
        return codes[name]

    def known(self, sort: str, names: Sequence[str]) -> Codes:
        """Codes of those names that occurred."""
        codes = self._codes[sort]
        return np.array([codes[name] for name in names if name in codes], np.int8)

    def among(self, sort: str, names: Sequence[str], codes: Codes) -> npt.NDArray[np.bool_]:
        """Which of the codes are those of these names."""
        chosen = np.zeros(_MOST + 1, np.bool_)
        chosen[self.known(sort, names)] = True
        return take_small(chosen, codes, 0)


def codes_of(
    words: Vocabulary,
    sort: str,
    seen: npt.NDArray[np.bool_],
    strings: dict[int, str],
    rename: Callable[[str], str] = str,
    numbers: Sequence[str] = (),
) -> Codes:
    """Codes of the names behind a process's string ids, and from 256 on behind interface v1's
    numbers; `seen`: which of them occur.
    """
    table = np.full(512, NONE, np.int8)
    for place in np.flatnonzero(seen).tolist():
        if 0 < place < 256 and strings.get(place):
            table[place] = words.code(sort, rename(strings[place]))
        elif 256 <= place < 256 + len(numbers):
            table[place] = words.code(sort, numbers[place - 256])
    return table
