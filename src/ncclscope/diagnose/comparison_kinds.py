"""A comparison with some kinds of calls alone."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from ncclscope.analysis.job_samples import Key
from ncclscope.diagnose.comparison import Comparison
from ncclscope.errors import UsageError


def of_kinds(
    comparison: Comparison, communicators: Sequence[str] | None, functions: Sequence[str] | None
) -> Comparison:
    """With kinds of calls of these communicators, as names or patterns, and functions. The verdict
    stays that on the job: a part of its calls says little about it.
    """
    keys = [change.key for change in comparison.changes]
    keys += [key for key, _ in (*comparison.appeared, *comparison.vanished)]
    chosen = set(keys)
    chosen &= _matching(keys, lambda key: key[0], communicators, "communicator", fnmatchcase)
    chosen &= _matching(keys, lambda key: key[1], functions, "operation", _same_word)
    return replace(
        comparison,
        changes=tuple(change for change in comparison.changes if change.key in chosen),
        appeared=tuple(entry for entry in comparison.appeared if entry[0] in chosen),
        vanished=tuple(entry for entry in comparison.vanished if entry[0] in chosen),
    )


def _same_word(name: str, wanted: str) -> bool:
    return name.casefold() == wanted.casefold()


def _matching(
    keys: Sequence[Key],
    part: Callable[[Key], str | int],
    wanted: Sequence[str] | None,
    what: str,
    matches: Callable[[str, str], bool],
) -> set[Key]:
    """Keys of which that part matches one of the words. Raises if a word matches none."""
    if not wanted:
        return set(keys)
    chosen: set[Key] = set()
    for word in wanted:
        found = {key for key in keys if matches(str(part(key)), word)}
        if not found:
            names = ", ".join(sorted({str(part(key)) for key in keys})) or "none"
            message = f"cannot select {what} {word}: neither job has such calls"
            raise UsageError(message, f"They have {names}")
        chosen |= found
    return chosen
