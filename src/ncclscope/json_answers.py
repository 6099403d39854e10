"""What the JSON of all verbs has in common: its version and how it is written. docs/json.md
describes the rest.
"""

import json
import math
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

VERSION = 1  # of all of it; keys are added without a change of it


def version_of(document: Mapping[str, Any]) -> object:
    """The version of a file that `bench --save` wrote; before 0.2.0 it was called form_version."""
    return document.get("version", document.get("form_version"))


def json_text(value: object, line: str = "\n") -> str:
    """What json.dumps(value, indent=2, allow_nan=False) returns, in a quarter of the time: a report
    of ten thousand ranks has two million values. `line`: a line break with the indentation.
    """
    kind = type(value)
    if isinstance(value, str) and kind is str:
        return quoted(value)
    if kind is int or (isinstance(value, float) and kind is float and math.isfinite(value)):
        return repr(value)
    inner = line + "  "
    if isinstance(value, dict) and kind is dict and value and set(map(type, value)) == {str}:
        pairs = [f"{quoted(name)}: {json_text(own, inner)}" for name, own in value.items()]
        return f"{{{inner}{f',{inner}'.join(pairs)}{line}}}"
    if isinstance(value, (list, tuple)) and kind in (list, tuple) and value:
        return f"[{inner}{f',{inner}'.join([json_text(own, inner) for own in value])}{line}]"
    return json.dumps(value, indent=2, allow_nan=False).replace("\n", line)
