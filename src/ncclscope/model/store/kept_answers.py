"""Answers that follow from a saved model alone, kept beside it: `account.json` and the like.

An answer is of one model, which it names by the seal of the manifest, and of one version of the
analysis. Files of others, and damaged ones, are as if they were not there. Readers check what they
get: nothing that indexes memory is believed because of a digest.
"""

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from ncclscope.model.model import Model
from ncclscope.model.store.saved_model import FOLDER
from ncclscope.private_directory import new_private_file
from ncclscope.regular_files import read_bytes

_LARGEST_BYTES = 1 << 28


def kept_answer(model: Model, name: str, version: int) -> Any:
    """An answer about a saved model; None where there is none."""
    if not model.seal:
        return None
    try:
        digest, _, text = read_bytes(_file(model, name), _LARGEST_BYTES).partition(b"\n")
        head = json.loads(text.partition(b"\n")[0])
        if head != _head(model, version) or digest.decode() != _digest(text):
            return None
        return json.loads(text.partition(b"\n")[2])
    except (OSError, ValueError, RecursionError):
        return None


def keep_answer(model: Model, name: str, version: int, answer: Any) -> None:
    """Keeps an answer about a saved model; where that cannot be written, nothing happens."""
    if not model.seal:
        return
    head, body = json.dumps(_head(model, version)), json.dumps(answer)
    text = f"{head}\n{body}".encode()
    place = _file(model, name)
    with suppress(OSError), new_private_file(place) as file:  # somebody else's capture, a full disk
        file.write(_digest(text).encode() + b"\n" + text)


def _file(model: Model, name: str) -> Path:
    return model.path / FOLDER / f"{name}.json"


def _head(model: Model, version: int) -> dict[str, Any]:
    return {"seal": model.seal, "version": version}


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
