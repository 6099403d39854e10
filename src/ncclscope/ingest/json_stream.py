"""JSON documents with one long list, read element by element: memory does not grow with it."""

import codecs
import json
from collections.abc import Iterator
from typing import Any, BinaryIO

_CHUNK = 1 << 18
_LONGEST = 1 << 24  # characters of one element
_LONGEST_OTHER = 1 << 28  # of what stands beside the list
_SPACE = " \t\n\r"


class CutError(Exception):
    """The document is cut off."""


class _Window:
    """The part of a document that is in memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._decoder = json.JSONDecoder()
        self.text, self.at, self.ended = "", 0, False

    def more(self) -> bool:
        """Reads on; False at the end."""
        if self.ended:
            return False
        data = self._file.read(max(_CHUNK, len(self.text) - self.at))  # at least twice as much
        self.ended = not data
        self.text = self.text[self.at :] + self._decode(data, self.ended)
        self.at = 0
        return True

    def peek(self) -> str:
        """The next character that is no space; "" at the end."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in _SPACE:
                self.at += 1
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                return ""

    def skip(self, expected: str) -> None:
        """Steps over a character that must come next."""
        character = self.peek()
        if character == "":
            raise CutError
        if character != expected:
            raise ValueError(f"{expected} expected, not {character}")
        self.at += 1

    def value(self, longest: int = _LONGEST) -> Any:
        """The next value."""
        if self.peek() == "":
            raise CutError
        while True:
            try:
                value, end = self._decoder.raw_decode(self.text, self.at)
                if end < len(self.text) or self.ended:  # else a number could go on
                    self.at = end
                    return value
            except ValueError:
                if self.ended:
                    raise CutError from None
            except RecursionError:
                raise ValueError("it is nested too deeply") from None
            if len(self.text) - self.at > longest:
                raise ValueError(f"one of its values is damaged, or over {longest >> 20} MB")
            self.more()


def elements(file: BinaryIO, key: str) -> Iterator[tuple[str, Any]]:
    """(key, element) for each element of a list that is the document, or its member `key`;
    (name, value) for its other members. Raises ValueError for what is no JSON, CutError where the
    document is cut off.
    """
    window = _Window(file)
    first = window.peek()
    if first == "[":
        for element in _list(window):
            yield key, element
        return
    window.skip("{")
    while window.peek() != "}":
        name = window.value()
        if not isinstance(name, str):
            raise ValueError("a name expected")
        window.skip(":")
        if name == key and window.peek() == "[":
            for element in _list(window):
                yield key, element
        else:
            yield name, window.value(_LONGEST_OTHER)
        if window.peek() == ",":
            window.at += 1
        elif window.peek() != "}":
            raise CutError if window.peek() == "" else ValueError("a comma expected")


def _list(window: _Window) -> Iterator[Any]:
    window.skip("[")
    while window.peek() != "]":
        yield window.value()
        if window.peek() == ",":
            window.at += 1
        elif window.peek() != "]":
            raise CutError if window.peek() == "" else ValueError("a comma expected")
    window.at += 1
