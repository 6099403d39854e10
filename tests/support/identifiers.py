"""Identifiers of source files: Python, C and TypeScript."""

import functools
import io
import re
import tokenize
from pathlib import Path

_COMMENTS_AND_STRINGS = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`", re.S
)
_NAME = re.compile(r"[A-Za-z_]\w*")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def identifiers_in(path: Path) -> set[str]:
    """Names in a file, without those in comments and strings; and the file's own name."""
    text = path.read_text()
    if path.suffix == ".py":
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        names = {token.string for token in tokens if token.type == tokenize.NAME}
    else:
        names = set(_NAME.findall(_COMMENTS_AND_STRINGS.sub(" ", text)))
    return names | {path.stem}


def names_in(path: Path) -> set[str]:
    """All that looks like a name, in comments and strings too: more than `identifiers_in`, and quickly."""
    return {*_NAME.findall(path.read_text()), path.stem}


@functools.cache
def words_of(identifier: str) -> list[str]:
    """`startUsual`, `start_usual` and `START_USUAL` are start and usual."""
    return [word.lower() for word in _WORD.findall(identifier)]
