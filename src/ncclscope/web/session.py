"""A capture's timeline while somebody looks at it: scenes, made in the background and renewed while
the capture grows.
"""

import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ncclscope.capture.process import open_process
from ncclscope.capture.reader import is_dataset, process_folders
from ncclscope.errors import FormatError, NcclscopeError
from ncclscope.model.build import open_model
from ncclscope.model.model import Model
from ncclscope.model.store.saved_model import fingerprint
from ncclscope.private_directory import make_private_directory
from ncclscope.web.bar_details import Lookup
from ncclscope.web.bars import Bars
from ncclscope.web.callback_index import FOLDER, load_rows, save_rows, who_is
from ncclscope.web.callback_rows import Place, event_rows
from ncclscope.web.counters import SampledDevice, gauged
from ncclscope.web.operation_rows import channel_rows, operation_rows
from ncclscope.web.preview import preview_rows
from ncclscope.web.process_labels import known_by_files, known_by_model
from ncclscope.web.scene import Composer

_SMALL_BYTES = 64 << 20  # of such captures the first scene is the last one
_LOOK_EVERY_S = 1.0
_SHOW_EVERY_S = 3.0  # while a large capture is indexed
_MOST_WORKERS = 8
Rows = list[tuple[Place, Bars]]


def index_process(folder: Path, target: Path) -> int:
    """Writes one process's rows of callbacks; how many bars they have."""
    process = open_process(folder)
    rows, last_ns = event_rows(process)
    save_rows(rows, who_is(process, last_ns), target)
    return sum(len(bars) for _, bars in rows)


def _mark(folder: Path) -> str:
    """What a process's files look like from outside."""
    states = []
    for file in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if file.name != "live":
            with contextlib.suppress(FileNotFoundError):
                state = file.stat(follow_symlinks=False)
                states.append(f"{file.name}-{state.st_size}-{state.st_mtime_ns}")
    return " ".join(states)


class Timeline:
    """The current scene of a capture, and how far the next one is."""

    def __init__(self, capture: Path) -> None:
        self.capture = capture
        self.scene = Composer([], None).scene()
        self.generation = 0
        self.progress = ""  # what is being done, "" when nothing is
        self.trouble = ""
        self.findings: list[dict[str, Any]] = []  # with places of the current scene
        self.bars_indexed = 0
        self.index_s = 0.0
        self._events: dict[str, tuple[str, Rows, dict[str, Any]]] = {}  # by folder, with its mark
        self._coarse: list[tuple[dict[str, Any], Bars]] = []  # of large captures, until indexed
        self._shown_at = 0.0
        self._failure: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="timeline", daemon=True)
        self._temporary: Path | None = None

    # ---- life ----
    def start(self) -> None:
        """Has a first scene; goes on in the background."""
        if not is_dataset(self.capture) and self._size_bytes() > _SMALL_BYTES:
            self._show_coarse()
        self._thread.start()
        while not self.generation and self._thread.is_alive():
            if self._failure is not None:
                raise self._failure
            time.sleep(0.01)

    def make(self) -> None:
        """Has the whole scene, however long that takes; nothing goes on in the background."""
        self._renew()

    def stop(self) -> None:
        """Ends the background work as soon as it can."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=30)
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _size_bytes(self) -> int:
        return sum(
            file.stat().st_size
            for folder in process_folders(self.capture)
            for file in folder.glob("log.*")
        )

    def _work(self) -> None:
        """Makes what is missing, then again whenever the capture has changed."""
        shown = ""
        while not self._stop.is_set():
            wait_s = _LOOK_EVERY_S
            try:
                mark = fingerprint(self.capture)
                if mark != shown:
                    began = time.monotonic()
                    self._renew()
                    shown = mark
                    wait_s = max(wait_s, 3 * (time.monotonic() - began))
            except (NcclscopeError, OSError) as error:
                self.trouble, self.progress = str(error), ""
                self._failure = error
            except Exception as error:  # a mistake of ours must not look like an idle page
                self.trouble, self.progress = f"a mistake in ncclscope: {error!r}", ""
                self._failure = NcclscopeError(self.trouble)
            self._stop.wait(wait_s)

    # ---- scenes ----
    def _show(self, composer: Composer) -> None:
        self.findings = []  # theirs are places of the scene before
        self.scene = composer.scene()
        self.generation += 1

    def _show_coarse(self) -> None:
        """A first picture from a sample of each file."""
        self._coarse = preview_rows(process_folders(self.capture))
        self._show_partly()

    def _show_partly(self) -> None:
        """What is indexed, and samples of the rest."""
        told = [self._events.get(who["folder"], ("", [], who)) for who, _ in self._coarse]
        composer = Composer(known_by_files([who for _, _, who in told], self.capture), None)
        for process, (mark, rows, _) in enumerate(told):
            if mark:
                composer.add_events(process, rows)
            else:
                composer.add_coarse(process, self._coarse[process][1])
        self._shown_at = time.monotonic()
        self._show(composer)

    def _renew(self) -> None:
        """The whole scene of the capture as it is now."""
        if not is_dataset(self.capture):
            self._index()
        self.progress = "making the model"
        mark = fingerprint(self.capture)
        model = open_model(self.capture)
        devices = list(gauged(model))
        self._show(self._composed(model, mark, devices))
        self._coarse = []
        if not is_dataset(self.capture):
            self.progress = "reading GPU stamps of channels"
            composer = self._composed(model, mark, devices)
            for process in range(len(model.processes)):
                rows = self._kept(
                    f"p{process}.channels", mark, partial(channel_rows, model, process)
                )
                composer.add_model_rows(process, rows)
                if self._stop.is_set():
                    return
            self._show(composer)
        self.progress = "looking for findings"
        # The first picture does not wait for the import of all that diagnoses.
        from ncclscope.web.findings import findings

        self.findings = findings(Lookup(self.scene, self.capture), model)
        self.progress = self.trouble = ""

    def _composed(self, model: Model, mark: str, devices: list[SampledDevice]) -> Composer:
        """Operations, callbacks, and what was sampled of the machines."""
        told = {folder: who for folder, (_, _, who) in self._events.items()}
        composer = Composer(known_by_model(model, told), model)
        for number, row in enumerate(model.processes):
            known = composer.known[number]
            last_ns = known.shift.to_scene(known.last_ns) if row.folder in told else known.last_ns
            make = partial(operation_rows, model, number, last_ns)
            composer.add_model_rows(number, self._kept(f"p{number}.operations", mark, make))
            if row.folder in self._events:
                composer.add_events(number, self._events[row.folder][1])
        composer.add_counters(devices)
        return composer

    def _kept(self, name: str, mark: str, make: Callable[[], Rows]) -> Rows:
        """Rows of a process; of large captures on disk, so that they need no memory."""
        if self._size_bytes() <= _SMALL_BYTES:
            return make()
        place = self._folder()
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            if (place / f"{name}.mark").read_text() == mark:
                return load_rows(place / f"{name}.rows")[0]
        save_rows(make(), {}, place / f"{name}.rows")
        (place / f"{name}.mark").write_text(mark)
        return load_rows(place / f"{name}.rows")[0]

    # ---- the index of callbacks ----
    def _folder(self) -> Path:
        """Where the index is kept: beside the capture, or in a place that goes with us."""
        place = self.capture / FOLDER
        try:
            make_private_directory(place)
            if os.access(place, os.W_OK):
                return place
        except OSError:
            pass
        if self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="ncclscope-timeline-"))
        return self._temporary

    def _index(self) -> None:
        """Rows of all processes whose files have changed."""
        place = self._folder()
        missing: list[tuple[Path, str]] = []
        for folder in process_folders(self.capture):
            mark = _mark(folder)
            if self._events.get(folder.name, ("",))[0] != mark and not self._load(
                place, folder.name, mark
            ):
                missing.append((folder, mark))
        began = time.monotonic()
        for number, (folder, mark, count) in enumerate(self._indexed(missing, place)):
            self.progress = f"indexing process {number + 1} of {len(missing)}"
            self.bars_indexed += count
            self.index_s = time.monotonic() - began
            (place / f"{folder.name}.mark").write_text(mark)
            self._load(place, folder.name, mark)
            if self._coarse and time.monotonic() - self._shown_at > _SHOW_EVERY_S:
                self._show_partly()
            if self._stop.is_set():
                return

    def _indexed(self, missing: list[tuple[Path, str]], place: Path) -> Any:
        """Indexes processes one after the other, with workers where there is much."""
        workers = min(len(os.sched_getaffinity(0)), len(missing), _MOST_WORKERS)
        if workers < 2 or self._size_bytes() <= _SMALL_BYTES:
            for folder, mark in missing:
                with contextlib.suppress(FormatError):  # the model says which and why
                    yield folder, mark, index_process(folder, place / f"{folder.name}.rows")
            return
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            waiting = [
                (folder, mark, pool.submit(index_process, folder, place / f"{folder.name}.rows"))
                for folder, mark in missing
            ]
            for folder, mark, future in waiting:
                with contextlib.suppress(FormatError):
                    yield folder, mark, future.result()
                if self._stop.is_set():
                    pool.shutdown(cancel_futures=True)

    def _load(self, place: Path, name: str, mark: str) -> bool:
        """Takes a process's rows from the index, if they are current."""
        try:
            if (place / f"{name}.mark").read_text() != mark:
                return False
            rows, who = load_rows(place / f"{name}.rows")
        except (OSError, ValueError, KeyError, TypeError):
            return False
        self._events[name] = (mark, rows, who)
        return True
