"""The account of waiting of a long run, made by the workers of a cluster from the saved model."""

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from ncclscope.analysis.selection import Selection
from ncclscope.analysis.waiting.account import Answer, waiting_account
from ncclscope.analysis.waiting.windows import MOST_AT_ONCE, Tasks
from ncclscope.errors import NcclscopeError
from ncclscope.model.engine import Engine, Engines
from ncclscope.model.model import Model
from ncclscope.model.store.saved_model import FOLDER, load


@dataclass(frozen=True, slots=True)
class SavedModel:
    """A saved model that a task opens where it runs. The command has checked it."""

    capture: Path
    seal: str

    def __call__(self) -> Model:
        return _loaded(self)


@lru_cache(maxsize=1)  # tasks of one command follow each other
def _loaded(saved: SavedModel) -> Model:
    model = load(saved.capture, saved.capture / FOLDER)
    if model.seal != saved.seal:
        message = f"the model of {saved.capture} has changed meanwhile"
        raise NcclscopeError(message, "Run it again")
    return model


def tasks_on(engine: Engine, model: Model) -> Tasks:
    """Tasks about a saved model on an engine."""
    return Tasks(SavedModel(model.path, model.seal), engine.map)


def waiting_account_on(engine_of: Engines | None, model: Model, selection: Selection) -> Answer:
    """What `waiting_account` returns. An engine makes it where the run is long, and the model lies
    where workers can see it.
    """
    long = len(model.tables["operations"]["event"]) > MOST_AT_ONCE
    if engine_of is None or not long or not model.seal or not os.access(model.path, os.W_OK):
        return waiting_account(model, selection)
    with (
        TemporaryDirectory(prefix=f".{FOLDER}-", dir=model.path) as scratch,
        engine_of([], Path(scratch)) as engine,
    ):
        return waiting_account(model, selection, tasks=tasks_on(engine, model))
