"""A model made by workers, or with its arrays in files, is the same; a worker's end is one sentence."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ncclscope.analysis import kernel_time as analysis_busy
from ncclscope.analysis.kernel_time import KernelTime, kernel_sums, kernel_time
from ncclscope.analysis.selection import Selection
from ncclscope.arrays import chunks, library
from ncclscope.errors import NcclscopeError
from ncclscope.model import decode_pool
from ncclscope.model.build import open_model
from ncclscope.model.model import Model
from ncclscope.model.process import decoded_process
from tests.support.player import TRANSCRIPTS
from tests.support.writer import SyntheticSpec, from_transcript, synthetic
from tests.support.writer.spec import Work

MIX = (Work(), Work("SendRecv", 1000), Work("Broadcast", 500, root=1))


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("workers") / "capture"
    synthetic(path, SyntheticSpec(processes=5, operations=300, ranks_per_node=2, mix=MIX))
    (path / "broken.1.1").mkdir()
    (path / "broken.1.1" / "meta").write_bytes(b"nothing")
    return path


@pytest.fixture
def plain(capture: Path) -> Iterator[Model]:
    """The model made in this process."""
    shutil.rmtree(capture / "model", ignore_errors=True)
    model = open_model(capture)
    # Mapped columns outlive their files.
    yield model
    shutil.rmtree(capture / "model", ignore_errors=True)


def check_same(made: Model, expected: Model) -> None:
    assert made.completeness == expected.completeness
    assert made.processes == expected.processes
    assert made.words == expected.words
    for table, columns in expected.tables.items():
        for name, values in columns.items():
            np.testing.assert_array_equal(made.tables[table][name], values, f"{table}.{name}")


@pytest.mark.parametrize("cores", [1, 2, 3, 8])
def test_workers_make_the_same_model(
    cores: int, capture: Path, plain: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_pool, "_WORTH_WORKERS_BYTES", 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    shutil.rmtree(capture / "model")
    check_same(open_model(capture), plain)
    assert any("not read" in note for note in plain.completeness.notes)


def test_arrays_in_files_make_the_same_model(
    capture: Path, plain: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "_LARGE_BYTES", 1)
    shutil.rmtree(capture / "model")
    check_same(open_model(capture), plain)
    assert not [file for file in (capture / "model").iterdir() if file.name.startswith("tmp")]


def test_a_killed_worker_is_one_sentence(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_pool, "_WORTH_WORKERS_BYTES", 0)
    me, decode = os.getpid(), decoded_process.decode_process

    def die(folder: Path) -> object:
        if os.getpid() != me and "node1" in folder.name:
            os.kill(os.getpid(), signal.SIGKILL)
        return decode(folder)

    monkeypatch.setattr(decode_pool, "process_of", die)
    shutil.rmtree(capture / "model", ignore_errors=True)
    before = set(os.listdir(capture))
    with pytest.raises(NcclscopeError, match="worker"):
        open_model(capture)
    assert set(os.listdir(capture)) == before


def test_a_workers_fault_is_raised(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_pool, "_WORTH_WORKERS_BYTES", 0)

    def fail(folder: Path) -> object:
        raise MemoryError(folder.name)

    monkeypatch.setattr(decode_pool, "process_of", fail)
    shutil.rmtree(capture / "model", ignore_errors=True)
    with pytest.raises(MemoryError):
        open_model(capture)


def busy_of(model: Model) -> KernelTime:
    by = ("communicator", "function")
    rows = [(0, len(model.tables["operations"]["event"]))]
    return kernel_time(kernel_sums(model, Selection(), by, rows), model.words["function"], by)


def test_large_processes_are_read_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several ranks in a process, all sorts of calls, and a real job with stamps to repair."""
    spec = SyntheticSpec(
        processes=2, ranks_per_process=2, ranks_per_node=2, operations=400, mix=MIX
    )
    synthetic(tmp_path / "synthetic", spec)
    from_transcript(TRANSCRIPTS / "2.31.2-v7-2ranks", tmp_path / "real")
    for path in (tmp_path / "synthetic", tmp_path / "real"):
        whole = open_model(path)
        busy = busy_of(whole)
        with monkeypatch.context() as small:
            small.setattr(chunks, "_CHUNK_ROWS", 37)
            small.setattr(analysis_busy, "_CHUNK_ROWS", 41)
            small.setattr(library, "_LARGE_BYTES", 100)
            shutil.rmtree(path / "model")
            made = open_model(path)
            check_same(made, whole)
            assert len(made.tables["operations"]["event"]) > 4 * 37
            assert busy_of(made) == busy
