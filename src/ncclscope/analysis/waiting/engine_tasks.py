"""Tasks about a saved model, which the workers of a cluster open where they run."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ncclscope.analysis.waiting.windows import Tasks
from ncclscope.errors import NcclscopeError
from ncclscope.model.engine import Engine
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
