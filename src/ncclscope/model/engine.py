"""What carries out the stages in which a model is made: this machine, or a cluster.

A stage is a function of a bundle of processes. It reads the files of the model that is being made,
and returns something small, or writes files that it does not read: a cluster may repeat it.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ncclscope.model.model import Progress
from ncclscope.threads import in_threads

if TYPE_CHECKING:
    from ncclscope.model.decode_pool import Decoder

Item = TypeVar("Item")
Result = TypeVar("Result")
_MOST_THREADS = 32


@dataclass(frozen=True, slots=True)
class ProcessOperations:
    """The operations of one process."""

    process: int  # row of `processes`
    node: int
    first_row: int
    rows: int
    width_ns: int  # how far its times may be off within its node


class Engine(Protocol):
    """Carries out stages.

    repeats   whether a task may run twice, the first time perhaps not to its end
    threads   that a task may use
    """

    repeats: bool
    threads: int

    def decoders(self, folders: Sequence[Path]) -> AbstractContextManager["list[Decoder]"]:
        """Decoders of process folders: the first decodes the first one, and so on in turns."""

    def bundles(self, processes: Sequence[ProcessOperations]) -> list[list[ProcessOperations]]:
        """Processes in their order, those of a task together."""

    def map(
        self,
        do: Callable[[Item], Result],
        items: Sequence[Item],
        progress: Progress | None = None,
    ) -> list[Result]:
        """`do(item)` of each item, in their order."""

    def reduce(
        self,
        make: Callable[[Item], dict[int, Result]],
        items: Sequence[Item],
        merge: Callable[[Sequence[Result]], Result],
    ) -> dict[int, Any]:
        """By key the states that `make(item)` returned, merged in the order of the items. They stay
        where they are: as a part of an item of `map`, a task gets the state itself.
        """


# Makes an engine for process folders and the folder of a model.
Engines = Callable[[Sequence[Path], Path], AbstractContextManager[Engine]]


class _Here:
    """This machine: bundles are one, so that nothing has to be merged."""

    repeats = False

    def __init__(self, target: Path) -> None:
        self._target = target
        self.threads = min(len(os.sched_getaffinity(0)), _MOST_THREADS)

    def decoders(self, folders: Sequence[Path]) -> AbstractContextManager["list[Decoder]"]:
        from ncclscope.model.decode_pool import decoders  # a saved model needs no decoder

        return decoders(folders, self._target)

    def bundles(self, processes: Sequence[ProcessOperations]) -> list[list[ProcessOperations]]:
        return [list(processes)]

    def map(
        self,
        do: Callable[[Item], Result],
        items: Sequence[Item],
        progress: Progress | None = None,
    ) -> list[Result]:
        # numpy releases the interpreter. One item stays in this thread, where large arrays spill to
        # files.
        return in_threads(do, items, self.threads)

    def reduce(
        self,
        make: Callable[[Item], dict[int, Result]],
        items: Sequence[Item],
        merge: Callable[[Sequence[Result]], Result],
    ) -> dict[int, Any]:
        by_key: dict[int, list[Result]] = {}
        for item in items:
            for key, state in make(item).items():
                by_key.setdefault(key, []).append(state)
        return {
            key: states[0] if len(states) == 1 else merge(states) for key, states in by_key.items()
        }


@contextmanager
def here(folders: Sequence[Path], target: Path) -> Iterator[Engine]:
    """This machine."""
    yield _Here(target)
