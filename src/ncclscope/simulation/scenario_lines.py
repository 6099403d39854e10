"""Scenarios as `key = value` lines, which ranks and the simulated NCCL read.

Users write TOML (scenario_files.py); files with lines, which they wrote before, are still read.
"""

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from ncclscope.byte_sizes import size_in_bytes
from ncclscope.documentation import page
from ncclscope.errors import UsageError
from ncclscope.simulation.scenario import LISTS, Scenario, problems

_T = TypeVar("_T")


def bytes_of(text: str) -> int:
    """Bytes; K, M and G are powers of 1024. 64K -> 65536"""
    size_bytes = size_in_bytes(text, whole=True)
    if size_bytes is None:
        raise ValueError(f"{text} is not an amount of bytes")
    return size_bytes


def _value(name: str, kind: Any, text: str) -> Any:
    if name == "size":
        return bytes_of(text)
    if name == "text":
        return unquote(text)
    convert: Callable[[str], Any] = {int: int, float: float}.get(kind, str)
    try:
        if kind in ("tuple[int, ...]", tuple[int, ...]):
            return tuple(int(part) for part in text.split(","))
        return convert(text)
    except ValueError:
        raise ValueError(f"{name} is a number, and {text or 'nothing'} is none") from None


def _parse_line(kind: type[_T], text: str) -> _T:
    """An object from the words of a line: `name=value`, or values in the order of its fields."""
    types = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for place, word in enumerate(text.split()):
        name, equals, value = word.partition("=")
        if not equals:
            name, value = list(types)[place] if place < len(types) else word, word
        if name not in types:
            raise ValueError(f"{name} is none of {', '.join(types)}")
        values[name] = _value(name, types[name], value)
    required = [f.name for f in fields(kind) if f.default is MISSING]  # type: ignore[arg-type]
    missing = [name for name in required if name not in values]
    if missing:
        raise ValueError(f"{', '.join(missing)} is missing")
    return kind(**values)


def parse_scenario(text: str, origin: str = "scenario") -> Scenario:
    """The scenario that a text describes; a UsageError names the line that is wrong."""
    values: dict[str, Any] = {}
    types = {field.name: field.type for field in fields(Scenario)}
    number = 0
    try:
        for line in text.splitlines():
            number += 1
            key, equals, value = (part.strip() for part in line.partition("#")[0].partition("="))
            if not key and not equals:
                continue
            if key in LISTS:
                name, kind = LISTS[key]
                values[name] = (*values.get(name, ()), _parse_line(kind, value))
            elif key in types and key not in {name for name, _ in LISTS.values()}:
                values[key] = _value(key, types[key], value)
            else:
                raise ValueError(f"there is no key {key or line.strip()}")
        number = 0
        scenario = Scenario(**values)
        for problem in problems(scenario):
            raise ValueError(problem)
        return scenario
    except (ValueError, TypeError) as error:
        place = f"{origin}:{number}" if number else origin
        hint = f"{page('simulation.md')} has every key"
        raise UsageError(f"cannot read the scenario {place}: {error}", hint) from None


def _line_of(entry: Any) -> str:
    """The words of a line: the fields that differ from their defaults."""
    words = []
    for field in fields(entry):
        value = getattr(entry, field.name)
        if value != field.default:
            text = ",".join(map(str, value)) if isinstance(value, tuple) else value
            if field.name == "text":
                text = quote(value, safe=":.({})")
            words.append(f"{field.name}={text}")
    return " ".join(words)


def scenario_text(scenario: Scenario) -> str:
    """The scenario as text; parse_scenario returns the same scenario."""
    lists = {name: key for key, (name, _) in LISTS.items()}
    lines = []
    for field in fields(scenario):
        value = getattr(scenario, field.name)
        if field.name in lists:
            lines += [f"{lists[field.name]} = {_line_of(entry)}" for entry in value]
        elif value != field.default:
            lines.append(f"{field.name} = {value}")
    return "\n".join(lines) + "\n"
