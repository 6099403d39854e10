"""Scenario files: TOML, and the lines that were written before."""

import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from ncclscope.documentation import page
from ncclscope.errors import UsageError
from ncclscope.simulation.scenario import LISTS, Scenario, problems
from ncclscope.simulation.scenario_lines import bytes_of, parse_scenario

_PACKAGED = Path(__file__).parent  # has the scenarios that come with the package
_HINT = f"{page('simulation.md')} has every key"
_KINDS: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "str": (str,)}
_WORDS = {"int": "a whole number", "float": "a number", "str": "a text in quotes"}
_NUMBERS = "tuple[int, ...]"


def is_toml(path: Path) -> bool:
    """Whether a scenario file is TOML, by its name."""
    return path.suffix == ".toml"


def read_scenario(path: Path) -> Scenario:
    """The scenario in a file; a name without a directory may be one that comes with the package."""
    if path.name == str(path) and not path.exists() and (_PACKAGED / path).is_file():
        path = _PACKAGED / path
    hint = f"A scenario is a TOML file; {page('simulation.md')} says how to write one"
    try:
        text = path.read_text()
    except OSError as error:
        raise UsageError(f"cannot read the scenario {path}: {error.strerror}", hint) from None
    except UnicodeDecodeError:
        raise UsageError(f"cannot read the scenario {path}: it is no text", hint) from None
    return parse_toml(text, str(path)) if is_toml(path) else parse_scenario(text, str(path))


def parse_toml(text: str, origin: str = "scenario") -> Scenario:
    """The scenario that a TOML text describes; a UsageError names what is wrong."""
    try:
        scenario = _scenario(_toml(text))
        for problem in problems(scenario):
            raise ValueError(problem)
        return scenario
    except ValueError as error:  # also of the TOML reader, which gives line and column
        raise UsageError(f"cannot read the scenario {origin}: {error}", _HINT) from None


def _toml(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    entries: dict[str, Any] = tomllib.loads(text)
    return entries


def _scenario(entries: dict[str, Any]) -> Scenario:
    lists = {name for name, _ in LISTS.values()}
    types = {field.name: field.type for field in fields(Scenario) if field.name not in lists}
    values: dict[str, Any] = {}
    for key, value in entries.items():
        if key in LISTS:
            name, kind = LISTS[key]
            values[name] = tuple(_entry(key, kind, entry) for entry in _list(key, value))
        elif key in types:
            values[key] = _value(key, types[key], value)
        else:
            raise ValueError(f"there is no key {key}")
    return Scenario(**values)


def _list(key: str, value: Any) -> list[dict[str, Any]]:
    """The tables of a key: `[[late]]`, or `[late]` where there is only one."""
    tables = value if isinstance(value, list) else [value]
    if not all(isinstance(table, dict) for table in tables):
        raise ValueError(f"{key} is a table: write [[{key}]] and its keys below it")
    return tables


def _entry(key: str, kind: type, table: dict[str, Any]) -> Any:
    types = {field.name: field.type for field in fields(kind)}
    for name in table:
        if name not in types:
            raise ValueError(f"{name} of {key} is none of {', '.join(types)}")
    for field in fields(kind):
        if field.default is MISSING and field.name not in table:
            raise ValueError(f"{field.name} of {key} is missing")
    return kind(**{name: _value(name, types[name], value) for name, value in table.items()})


def _value(name: str, kind: Any, value: Any) -> Any:
    """A value of the type that its field has; sizes may be texts with a unit."""
    if name == "size" and isinstance(value, str):
        return bytes_of(value)
    kind = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
    if kind == "tuple" or kind == _NUMBERS:
        if not isinstance(value, list) or not all(type(number) is int for number in value):
            raise ValueError(f"{name} is a list of numbers, as in [0, 1]")
        return tuple(value)
    if isinstance(value, bool) or not isinstance(value, _KINDS[kind]):
        raise ValueError(f"{name} is {_WORDS[kind]}, and {value!r} is none")
    return value


def toml_text(scenario: Scenario) -> str:
    """The scenario as TOML; parse_toml returns the same scenario."""
    keys = {name: key for key, (name, _) in LISTS.items()}
    plain, tables = [], []
    for field in fields(scenario):
        value = getattr(scenario, field.name)
        if field.name in keys:
            tables += [_table(keys[field.name], entry) for entry in value]
        elif value != field.default:
            plain.append(f"{field.name} = {_literal(value)}")
    return "\n".join(plain) + "\n" + "".join(tables)


def _table(key: str, entry: Any) -> str:
    lines = [
        f"{field.name} = {_literal(getattr(entry, field.name))}"
        for field in fields(entry)
        if getattr(entry, field.name) != field.default
    ]
    return f"\n[[{key}]]\n" + "\n".join(lines) + "\n"


def _literal(value: Any) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return str(list(value)) if isinstance(value, tuple) else str(value)
