"""Engines for tests: tasks are repeated, commands end in the midst of a stage."""

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ncclscope.model.decode_pool import Decoder, decoders
from ncclscope.model.engine import Engine, ProcessOperations
from ncclscope.model.operation_files import OperationFiles
from ncclscope.model.store.checkpoints import rows_checksum


class _CutShortError(Exception):
    pass


class RepeatingEngine:
    """An engine whose tasks get copies of what they need, and write twice: half of it first."""

    repeats, threads = True, 1

    def __init__(self, target: Path) -> None:
        self._target = target

    def decoders(self, folders: Sequence[Path]) -> AbstractContextManager[list[Decoder]]:
        return decoders(folders, self._target)

    def bundles(self, processes: Sequence[ProcessOperations]) -> list[list[ProcessOperations]]:
        return [list(processes[first : first + 3]) for first in range(0, len(processes), 3)]

    def map(
        self, do: Callable[[Any], Any], items: Sequence[Any], progress: Any = None
    ) -> list[Any]:
        return [self._twice(do, item) for item in items]

    def _twice(self, do: Callable[[Any], Any], item: Any) -> Any:
        write, left = OperationFiles._write, [1]

        def cut_short(*arguments: Any) -> None:
            if not left[0]:
                raise _CutShortError
            left[0] -= 1
            write(*arguments)

        sent = pickle.dumps((do, item))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(OperationFiles, "_write", cut_short)
            try:
                first_do, first_item = pickle.loads(sent)
                first_do(first_item)
            except _CutShortError:
                pass
        again, again_item = pickle.loads(sent)
        return pickle.loads(pickle.dumps(again(again_item)))

    def reduce(
        self,
        make: Callable[[Any], dict[int, Any]],
        items: Sequence[Any],
        merge: Callable[[Sequence[Any]], Any],
    ) -> dict[int, Any]:
        states: dict[int, list[Any]] = {}
        for item in items:
            for key, state in self._twice(make, item).items():
                states.setdefault(key, []).append(state)
        merged = {}
        for key, parts in states.items():
            while len(parts) > 1:  # as a tree
                parts = [merge(parts[first : first + 2]) for first in range(0, len(parts), 2)]
            merged[key] = parts[0]
        return merged


@contextmanager
def repeating(folders: Sequence[Path], target: Path) -> Iterator[Engine]:
    yield RepeatingEngine(target)


class _Noting:
    """A decoder that says what it wrote, as those of a cluster do."""

    def __init__(self, decoder: Any, each: Callable[[], object]) -> None:
        self._decoder, self._each = decoder, each
        self.checksum: int | None = None

    def decode(self) -> Any:
        self._each()
        return self._decoder.decode()

    def write(self, placement: Any) -> None:
        columns = self._decoder._columns
        self._decoder.write(placement)
        self.checksum = rows_checksum(columns)

    def streams(self) -> Any:
        return self._decoder.streams()


class NotingEngine(RepeatingEngine):
    """The same with checkpoints of decoded processes. Calls `after` with "decode" before a
    process is decoded, and with the name of a stage after each of its tasks.
    """

    def __init__(self, target: Path, after: Callable[[str], object]) -> None:
        super().__init__(target)
        self._after = after

    @contextmanager
    def decoders(self, folders: Sequence[Path]) -> Iterator[list[Any]]:
        with decoders(folders, self._target) as own:
            yield [_Noting(decoder, lambda: self._after("decode")) for decoder in own]

    def _twice(self, do: Callable[[Any], Any], item: Any) -> Any:
        returned = super()._twice(do, item)
        self._after(getattr(do, "__name__", type(do).__name__))
        return returned


def noting(after: Callable[[str], object]) -> Any:
    """Makes such engines."""

    @contextmanager
    def engine(folders: Sequence[Path], target: Path) -> Iterator[Engine]:
        yield NotingEngine(target, after)

    return engine


def saved_model(capture: Path) -> dict[str, Any]:
    """The saved model, with checksums of all columns."""
    saved = json.loads((capture / "model" / "manifest.json").read_text())
    return {name: saved[name] for name in saved if name not in ("seal", "stamps", "fingerprint")}
