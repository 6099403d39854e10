"""Stages of a model in many tasks, each done twice and cut short the first time: every value is that
of one task.
"""

import json
import pickle
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ncclscope.model import capture_counts
from ncclscope.model.build import open_model
from ncclscope.model.decode_pool import Decoder, decoders
from ncclscope.model.engine import Engine, ProcessOperations
from ncclscope.model.operation_files import OperationFiles
from tests.support.player import TRANSCRIPTS
from tests.support.writer import ALL_KINDS_OF_WORK, SyntheticSpec, from_transcript, synthetic


class _CutShortError(Exception):
    pass


class _Repeating:
    """An engine whose tasks get copies of what they need, and write twice: half of it first."""

    repeats, threads = True, 1

    def __init__(self, folders: Sequence[Path], target: Path) -> None:
        self._folders, self._target = folders, target

    def decoders(self) -> AbstractContextManager[list[Decoder]]:
        return decoders(self._folders, self._target)

    def bundles(self, processes: Sequence[ProcessOperations]) -> list[list[ProcessOperations]]:
        return [list(processes[first : first + 3]) for first in range(0, len(processes), 3)]

    def map(self, do: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
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
    yield _Repeating(folders, target)


def _attempts(capture: Path, **values: Any) -> None:
    """Two attempts on two nodes, all sorts of calls, a process that is missing, and a killed one."""
    groups = ((0, 1, 2, 3), (4, 5, 6, 7), tuple(range(8)))
    spec = SyntheticSpec(
        processes=8, operations=60, ranks_per_node=4, communicators=groups,
        mix=ALL_KINDS_OF_WORK, attempts=2,
        missing=frozenset({5}), killed=frozenset({2}), **values,
    )  # fmt: skip
    synthetic(capture, spec)


MADE: dict[str, Callable[[Path], object]] = {"attempts": _attempts} | {
    name: partial(from_transcript, TRANSCRIPTS / name)
    for name in (
        "2.23.4-v1-2ranks", "2.28.9-v5-3ranks-hang", "2.28.9-v5-4ranks", "2.31.2-v7-2ranks",
    )
}  # fmt: skip


def manifest(capture: Path) -> dict[str, Any]:
    """The saved model, with checksums of all columns."""
    saved = json.loads((capture / "model" / "manifest.json").read_text())
    return {name: saved[name] for name in saved if name not in ("seal", "stamps", "fingerprint")}


def both(make: Callable[[Path], object], folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The models that one task and many repeated ones make."""
    make(folder / "here")
    shutil.copytree(folder / "here", folder / "there")
    open_model(folder / "here")
    open_model(folder / "there", engine_of=repeating)
    names = [{path.name for path in (folder / n / "model").iterdir()} for n in ("here", "there")]
    assert names[0] == names[1]
    return manifest(folder / "here"), manifest(folder / "there")


@pytest.mark.parametrize("name", MADE)
def test_every_value_is_that_of_one_task(name: str, tmp_path: Path) -> None:
    expected, answer = both(MADE[name], tmp_path)
    assert answer == expected
    assert expected["rows"]["operations"] > 0


def test_lost_calls_are_numbered_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_counts, "_lost_calls", lambda decoded: True)
    expected, answer = both(_attempts, tmp_path)
    assert answer == expected
