"""What the JSON of all verbs has in common: its version. docs/json.md describes the rest."""

from collections.abc import Mapping
from typing import Any

VERSION = 1  # of all of it; keys are added without a change of it


def version_of(document: Mapping[str, Any]) -> object:
    """The version of a file that `bench --save` wrote; before 0.2.0 it was called form_version."""
    return document.get("version", document.get("form_version"))
