"""A capture's timeline while its page is open: scenes, made in the background and made again while
the capture grows.
"""

import contextlib
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ncclscope.capture.housekeeping import is_recorders_name, process_folders
from ncclscope.capture.process import open_process
from ncclscope.capture.reader import is_dataset
from ncclscope.errors import FormatError, NcclscopeError
from ncclscope.model.build import open_model
from ncclscope.model.model import Model
from ncclscope.model.store.fingerprint import fingerprint
from ncclscope.private_directory import make_private_directory, write_private_text
from ncclscope.regular_files import read_text
from ncclscope.web.bars import Bars
from ncclscope.web.callback_index import FOLDER, ProcessFacts, facts_of, load_rows, save_rows
from ncclscope.web.callback_rows import Rows, callback_rows
from ncclscope.web.counters import SampledDevice, sampled_devices
from ncclscope.web.lookup import Lookup
from ncclscope.web.operation_rows import channel_rows, operation_rows
from ncclscope.web.preview import preview_rows
from ncclscope.web.process_labels import labels_from_files, labels_from_model
from ncclscope.web.scene import Scene, SceneBuilder
from ncclscope.web.training_rows import training_rows

_SMALL_BYTES = 64 << 20  # captures up to this size need no preview
_CHECK_EVERY_S = 1.0  # whether the capture has changed
_SHOW_EVERY_S = 3.0  # while a large capture is indexed
_MOST_WORKERS = 8
_LARGEST_MARK = 1 << 20
_Done = tuple[Path, str]  # folder of a process, and the state of its files when it was indexed


def index_process(folder: Path, target: Path) -> int:
    """Writes one process's rows of callbacks; the number of their bars."""
    process = open_process(folder)
    rows, last_ns = callback_rows(process)
    save_rows(rows, facts_of(process, last_ns), target)
    return sum(len(bars) for _, bars in rows)


def _has_room(folder: Path, size_bytes: int) -> bool:
    """Whether a file system has so much room and can hold more files; some say neither."""
    state = os.statvfs(folder)
    room = not state.f_blocks or state.f_bavail * state.f_frsize > size_bytes
    return room and (not state.f_files or state.f_favail > 0)


def _files_state(folder: Path) -> str:
    """Names, sizes and times of a process's files: they change when the process writes."""
    states = []
    for file in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if file.name != "live":
            with contextlib.suppress(FileNotFoundError):
                state = file.stat(follow_symlinks=False)
                states.append(f"{file.name}-{state.st_size}-{state.st_mtime_ns}")
    return " ".join(states)


@dataclass(frozen=True, slots=True)
class _IndexedProcess:
    """A process's rows of callbacks, its facts, and the state of its files when it was indexed."""

    files_state: str
    rows: Rows
    facts: ProcessFacts


class Timeline:
    """The current scene of a capture, and the progress of the next one."""

    def __init__(self, capture: Path) -> None:
        self.capture = capture
        self.scene = SceneBuilder([], None).scene()
        self.generation = 0  # counts scenes
        self.progress = ""  # what is being done; "" when nothing is
        self.trouble = ""
        self.findings: list[dict[str, Any]] = []  # with places in the current scene
        self._indexed: dict[str, _IndexedProcess] = {}  # by folder
        self._previews: list[tuple[ProcessFacts, Bars]] = []  # of a large capture until indexed
        self._shown_at = 0.0
        self._failure: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="timeline", daemon=True)
        self._temporary: Path | None = None

    # ---- start and stop ----
    def start(self) -> None:
        """Returns when there is a first scene, and goes on in the background."""
        if not is_dataset(self.capture) and self._size_bytes() > _SMALL_BYTES:
            self._show_preview()
        self._thread.start()
        while not self.generation and self._thread.is_alive():
            if self._failure is not None:
                raise self._failure
            time.sleep(0.01)

    def make(self) -> None:
        """Makes the complete scene now, without findings; nothing goes on in the background."""
        self._make_scene(with_findings=False)

    def findings_in(self, scene: Scene) -> list[dict[str, Any]]:
        """The findings of the capture, with places in a scene of it."""
        # Imported now: the first scene does not wait for the modules of diagnose.
        from ncclscope.web.findings import findings

        if scene.model is None:
            return []
        return findings(Lookup(scene, self.capture), scene.model)

    def stop(self) -> None:
        """Ends the background work as soon as it can."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=30)
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _folders(self) -> list[Path]:
        """Folders of processes; the model names those that no recorder made."""
        return [one for one in process_folders(self.capture) if is_recorders_name(one.name)]

    def _size_bytes(self) -> int:
        return sum(
            file.stat().st_size for folder in self._folders() for file in folder.glob("log.*")
        )

    def _work(self) -> None:
        """Makes a scene, and another one whenever the capture has changed."""
        shown = ""
        while not self._stop.is_set():
            wait_s = _CHECK_EVERY_S
            try:
                state = fingerprint(self.capture)
                if state != shown:
                    began = time.monotonic()
                    self._make_scene()
                    shown = state
                    wait_s = max(wait_s, 3 * (time.monotonic() - began))
            except (NcclscopeError, OSError) as error:
                self.trouble, self.progress = str(error), ""
                self._failure = error
            except MemoryError:
                self.trouble, self.progress = "not enough memory", ""
                self._failure = NcclscopeError(self.trouble)
            except Exception as error:  # a bug must not look like an idle page
                self.trouble, self.progress = f"a mistake in ncclscope: {error!r}", ""
                self._failure = NcclscopeError(self.trouble)
            self._stop.wait(wait_s)

    # ---- scenes ----
    def _show(self, builder: SceneBuilder) -> None:
        self.findings = []  # their places are in the scene before
        self.scene = builder.scene()
        self.generation += 1

    def _show_preview(self) -> None:
        """Shows a first scene from samples of each process."""
        self._previews = preview_rows(self._folders())
        self._show_partly_indexed()

    def _show_partly_indexed(self) -> None:
        """Shows the processes that are indexed, and previews of the others."""
        indexed = [self._indexed.get(facts["folder"]) for facts, _ in self._previews]
        facts = [
            process.facts if process else preview[0]
            for process, preview in zip(indexed, self._previews, strict=True)
        ]
        builder = SceneBuilder(labels_from_files(facts, self.capture), None)
        for number, process in enumerate(indexed):
            if process:
                builder.add_callbacks(number, process.rows)
            else:
                builder.add_preview(number, self._previews[number][1])
        self._shown_at = time.monotonic()
        self._show(builder)

    def _make_scene(self, with_findings: bool = True) -> None:
        """Shows the complete scene of the capture as it is now, in two steps, and its findings."""
        if not is_dataset(self.capture):
            self._index()
        self.progress = "making the model"
        state = fingerprint(self.capture)
        model = open_model(self.capture)
        devices = list(sampled_devices(model))
        builder = self._scene_builder(model, state, devices)
        if is_dataset(self.capture):
            self._add_path(builder, model)
        self._show(builder)
        self._previews = []
        if not is_dataset(self.capture):
            self.progress = "reading GPU stamps of channels"
            builder = self._scene_builder(model, state, devices)
            for process in range(len(model.processes)):
                make = partial(channel_rows, model, process)
                rows = self._cached_rows(f"p{process}.channels", state, make)
                builder.add_model_rows(process, rows)
                if self._stop.is_set():
                    return
            self._add_path(builder, model)
            self._show(builder)
        if with_findings:
            self.progress = "looking for findings"
            self.findings = self.findings_in(self.scene)
        self.progress = self.trouble = ""

    def _add_path(self, builder: SceneBuilder, model: Model) -> None:
        # Imported now: the first scene of a capture does not wait for these modules.
        from ncclscope.web.path_rows import path_bars

        self.progress = "following the critical path"
        bars = path_bars(model)
        if bars is not None:
            builder.add_path(bars)

    def _scene_builder(
        self, model: Model, state: str, devices: list[SampledDevice]
    ) -> SceneBuilder:
        """A builder with all operations, callbacks and sampled devices."""
        facts = {folder: process.facts for folder, process in self._indexed.items()}
        builder = SceneBuilder(labels_from_model(model, facts), model)
        for number, row in enumerate(model.processes):
            labels = builder.processes[number]
            is_local = row.folder in facts  # else the model gave the time, on the scene's clock
            last_ns = labels.clock.to_scene(labels.last_ns) if is_local else labels.last_ns
            make = partial(operation_rows, model, number, last_ns)
            rows = self._cached_rows(f"p{number}.operations", state, make)
            builder.add_model_rows(number, rows)
            make = partial(training_rows, model, number, last_ns)
            if model.has_context:
                rows = self._cached_rows(f"p{number}.training", state, make)
                builder.add_training(number, rows)
            if row.folder in self._indexed:
                builder.add_callbacks(number, self._indexed[row.folder].rows)
        builder.add_counters(devices)
        return builder

    def _cached_rows(self, name: str, state: str, make: Callable[[], Rows]) -> Rows:
        """Rows of a process; of a large capture in files, so that they take no memory."""
        if self._size_bytes() <= _SMALL_BYTES:
            return make()
        folder = self._index_folder()
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            if read_text(folder / f"{name}.mark", _LARGEST_MARK) == state:
                return load_rows(folder / f"{name}.rows")[0]
        save_rows(make(), {}, folder / f"{name}.rows")
        write_private_text(folder / f"{name}.mark", state)
        return load_rows(folder / f"{name}.rows")[0]

    # ---- the index of callbacks ----
    def _index_folder(self) -> Path:
        """The folder of the index: in the capture, or a temporary one where that is read-only or
        its disk is full.
        """
        folder = self.capture / FOLDER
        try:
            make_private_directory(folder)
            is_own = folder.is_dir() and not folder.is_symlink() and os.access(folder, os.W_OK)
            if is_own and _has_room(folder, self._size_bytes()):
                return folder
        except OSError:
            pass
        if self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="ncclscope-timeline-"))
        return self._temporary

    def _index(self) -> None:
        """Indexes all processes whose files have changed."""
        index_folder = self._index_folder()
        changed: list[tuple[Path, str]] = []
        for folder in self._folders():
            state = _files_state(folder)
            indexed = self._indexed.get(folder.name)
            if (indexed is None or indexed.files_state != state) and not self._load(
                index_folder, folder.name, state
            ):
                changed.append((folder, state))
        for number, (folder, state) in enumerate(self._index_each(changed, index_folder)):
            self.progress = f"indexing process {number + 1} of {len(changed)}"
            write_private_text(index_folder / f"{folder.name}.mark", state)
            self._load(index_folder, folder.name, state)
            if self._previews and time.monotonic() - self._shown_at > _SHOW_EVERY_S:
                self._show_partly_indexed()
            if self._stop.is_set():
                return

    def _index_each(self, changed: list[tuple[Path, str]], index_folder: Path) -> Iterator[_Done]:
        """Indexes processes, with workers where there is much to do."""
        workers = min(len(os.sched_getaffinity(0)), len(changed), _MOST_WORKERS)
        if workers < 2 or self._size_bytes() <= _SMALL_BYTES:
            for folder, state in changed:
                with contextlib.suppress(FormatError):  # the model says which and why
                    index_process(folder, _rows_file(index_folder, folder))
                    yield folder, state
            return
        context = get_context("spawn")
        with ProcessPoolExecutor(workers, context, initializer=_leave_interrupts) as pool:
            futures = [
                pool.submit(index_process, folder, _rows_file(index_folder, folder))
                for folder, _ in changed
            ]
            try:
                for (folder, state), future in zip(changed, futures, strict=True):
                    with contextlib.suppress(FormatError):
                        future.result()
                        yield folder, state
                    if self._stop.is_set():
                        pool.shutdown(cancel_futures=True)
            except (KeyboardInterrupt, GeneratorExit):
                pool.shutdown(wait=False, cancel_futures=True)
                for worker in multiprocessing.active_children():
                    worker.terminate()  # else the exit waits for what they are doing
                raise

    def _load(self, index_folder: Path, name: str, state: str) -> bool:
        """Takes a process's rows from the index; False where they are not current."""
        try:
            if read_text(index_folder / f"{name}.mark", _LARGEST_MARK) != state:
                return False
            rows, facts = load_rows(index_folder / f"{name}.rows")
        except (OSError, ValueError, KeyError, TypeError):
            return False
        self._indexed[name] = _IndexedProcess(state, rows, facts)
        return True


def _leave_interrupts() -> None:
    """Ctrl-C goes to all processes of a terminal: the first one ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # which the parent catches; it ends them by it


def _rows_file(index_folder: Path, folder: Path) -> Path:
    return index_folder / f"{folder.name}.rows"
