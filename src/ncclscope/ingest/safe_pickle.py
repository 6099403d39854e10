"""Pickles that hold data only: numbers, texts, lists, tuples, dicts.

Python's own unpickler calls what a pickle tells it to. This one does not know the instructions that
name a class, call something or reach outside: whoever wrote the file, nothing is executed. Its
memory is bounded by the file's size.
"""

import struct
from collections.abc import Callable
from typing import Any

_MARK = object()


class PickleError(ValueError):
    """Not a pickle, cut off, or not data only."""


class _Machine:
    """The stack machine that a pickle is a program for."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise PickleError("it is cut off")
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def number(self, kind: str, size: int) -> Any:
        return struct.unpack(kind, self.take(size))[0]

    def pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise PickleError("it is damaged")
        return self.stack.pop()

    def top(self, kind: type) -> Any:
        if not self.stack or type(self.stack[-1]) is not kind:
            raise PickleError("it is damaged")
        return self.stack[-1]

    def since_mark(self) -> list[Any]:
        items: list[Any] = []
        while self.stack:
            item = self.stack.pop()
            if item is _MARK:
                items.reverse()
                return items
            items.append(item)
        raise PickleError("it is damaged")

    def remember(self, key: int) -> None:
        if not self.stack:
            raise PickleError("it is damaged")
        self.memo[key] = self.stack[-1]

    def recall(self, key: int) -> None:
        if key not in self.memo:
            raise PickleError("it is damaged")
        self.stack.append(self.memo[key])

    def text(self, count: int) -> None:
        self.stack.append(self.take(count).decode("utf-8", "replace"))

    def long(self, count: int) -> None:
        if count > 16:
            raise PickleError("it holds a number of no use")
        self.stack.append(int.from_bytes(self.take(count), "little", signed=True))

    def tuple_of(self, count: int) -> None:
        items = [self.pop() for _ in range(count)]
        self.stack.append(tuple(reversed(items)))

    def append(self) -> None:
        item = self.pop()
        self.top(list).append(item)

    def extend(self) -> None:
        items = self.since_mark()
        self.top(list).extend(items)

    def set_item(self) -> None:
        value, key = self.pop(), self.pop()
        self.put(self.top(dict), key, value)

    def set_items(self) -> None:
        items = self.since_mark()
        target = self.top(dict)
        for place in range(0, len(items) - 1, 2):
            self.put(target, items[place], items[place + 1])

    def put(self, target: dict[Any, Any], key: Any, value: Any) -> None:
        if not isinstance(key, (str, int, float, bytes, type(None))):
            raise PickleError("it is damaged")
        target[key] = value

    def dict_of(self) -> None:
        self.stack.append({})
        items = self.since_mark_below()
        for place in range(0, len(items) - 1, 2):
            self.put(self.stack[-1], items[place], items[place + 1])

    def since_mark_below(self) -> list[Any]:
        made = self.stack.pop()
        items = self.since_mark()
        self.stack.append(made)
        return items


def _line_number(machine: _Machine) -> int:
    end = machine.data.find(b"\n", machine.at)
    if end < 0 or end - machine.at > 20:
        raise PickleError("it is damaged")
    digits = machine.take(end - machine.at + 1).strip().rstrip(b"L")
    try:
        return int(digits)
    except ValueError:
        raise PickleError("it is damaged") from None


_STEPS: dict[int, Callable[[_Machine], Any]] = {
    ord(b"\x80"): lambda m: m.take(1),  # PROTO
    ord(b"\x95"): lambda m: m.take(8),  # FRAME
    ord(b"("): lambda m: m.stack.append(_MARK),
    ord(b"0"): lambda m: m.pop(),
    ord(b"2"): lambda m: m.stack.append(m.stack[-1] if m.stack else m.pop()),
    ord(b"N"): lambda m: m.stack.append(None),
    ord(b"\x88"): lambda m: m.stack.append(True),
    ord(b"\x89"): lambda m: m.stack.append(False),
    ord(b"I"): lambda m: m.stack.append(_line_number(m)),
    ord(b"L"): lambda m: m.stack.append(_line_number(m)),
    ord(b"J"): lambda m: m.stack.append(m.number("<i", 4)),
    ord(b"K"): lambda m: m.stack.append(m.number("<B", 1)),
    ord(b"M"): lambda m: m.stack.append(m.number("<H", 2)),
    ord(b"\x8a"): lambda m: m.long(m.number("<B", 1)),
    ord(b"\x8b"): lambda m: m.long(m.number("<I", 4)),
    ord(b"G"): lambda m: m.stack.append(m.number(">d", 8)),
    ord(b"X"): lambda m: m.text(m.number("<I", 4)),
    ord(b"\x8c"): lambda m: m.text(m.number("<B", 1)),
    ord(b"\x8d"): lambda m: m.text(m.number("<Q", 8)),
    ord(b"T"): lambda m: m.text(m.number("<I", 4)),
    ord(b"U"): lambda m: m.text(m.number("<B", 1)),
    ord(b"B"): lambda m: m.stack.append(m.take(m.number("<I", 4))),
    ord(b"C"): lambda m: m.stack.append(m.take(m.number("<B", 1))),
    ord(b"]"): lambda m: m.stack.append([]),
    ord(b"l"): lambda m: m.stack.append(m.since_mark()),
    ord(b"}"): lambda m: m.stack.append({}),
    ord(b"d"): lambda m: m.dict_of(),
    ord(b")"): lambda m: m.stack.append(()),
    ord(b"t"): lambda m: m.stack.append(tuple(m.since_mark())),
    ord(b"\x85"): lambda m: m.tuple_of(1),
    ord(b"\x86"): lambda m: m.tuple_of(2),
    ord(b"\x87"): lambda m: m.tuple_of(3),
    ord(b"a"): lambda m: m.append(),
    ord(b"e"): lambda m: m.extend(),
    ord(b"s"): lambda m: m.set_item(),
    ord(b"u"): lambda m: m.set_items(),
    ord(b"q"): lambda m: m.remember(m.number("<B", 1)),
    ord(b"r"): lambda m: m.remember(m.number("<I", 4)),
    ord(b"p"): lambda m: m.remember(_line_number(m)),
    ord(b"\x94"): lambda m: m.remember(len(m.memo)),
    ord(b"h"): lambda m: m.recall(m.number("<B", 1)),
    ord(b"j"): lambda m: m.recall(m.number("<I", 4)),
    ord(b"g"): lambda m: m.recall(_line_number(m)),
}
_REACHES_OUT = {
    ord(b"c"): "names a class", ord(b"\x93"): "names a class", ord(b"i"): "makes an object",
    ord(b"o"): "makes an object", ord(b"\x81"): "makes an object", ord(b"\x92"): "makes an object",
    ord(b"R"): "calls something", ord(b"b"): "sets an object's state",
    ord(b"P"): "refers to something outside", ord(b"Q"): "refers to something outside",
    ord(b"\x82"): "names a class", ord(b"\x83"): "names a class", ord(b"\x84"): "names a class",
}  # fmt: skip
_STOP = ord(b".")


def loads(data: bytes) -> Any:
    """What the pickle holds; PickleError where it is more than data, or less."""
    machine = _Machine(data)
    steps = _STEPS
    while True:
        code = machine.take(1)[0]
        if code == _STOP:
            return machine.pop()
        step = steps.get(code)
        if step is None:
            does = _REACHES_OUT.get(code, f"has the unknown instruction {code:#x}")
            raise PickleError(f"it {does}: such pickles are refused, nothing of it was run")
        step(machine)
