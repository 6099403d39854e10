"""Makes web/src/generated.ts: what the timeline's page shares with its server.

    .venv/bin/python -m tools.page_constants

A test checks that the file is current.
"""

import json
import re
from pathlib import Path
from typing import Any

from ncclscope.analysis.measures import GRADE_OF, PERCENTS
from ncclscope.model.schema import SOURCES
from ncclscope.web import bars, kinds, marks, operation_rows, palette, queries, search, tiles

TARGET = Path(__file__).parents[1] / "web" / "src" / "generated.ts"
_ARRAYS = {"f4": "Float32Array", "u4": "Uint32Array", "u1": "Uint8Array"}
_KINDS = ("OPERATION", "PART", "CHANNEL", "COMMUNICATOR", "PREVIEW", "COUNTER", "BANDWIDTH")
_LOOKS = (
    "OPEN", "UNTIMED", "REPAIRED", "INFERRED", "REPLAY", "LOWER_BOUND", "CUT", "MISMATCH"
)  # fmt: skip


def _value(value: Any) -> str:
    """A value in TypeScript, with quotes only around keys that need them."""
    text = json.dumps(value, ensure_ascii=False)
    return re.sub(r'"([A-Za-z_$][\w$]*|[0-9]+)": ', r"\1: ", text)


def _camel(name: str) -> str:
    first, *others = name.lower().split("_")
    return first + "".join(word.capitalize() for word in others)


def _constant(comment: str, name: str, value: Any, type_: str = "") -> list[str]:
    """A constant; objects and long lists have an entry a line."""
    head = f"export const {name}{f': {type_}' if type_ else ''} = "
    tail = "" if type_ or not isinstance(value, (list, dict)) else " as const"
    lines = ["", *([f"/** {comment} */"] if comment else [])]
    short = f"{head}{_value(value)}{tail};"
    if isinstance(value, str) or (not isinstance(value, dict) and len(short) < 120):
        wrapped = [head.rstrip(), f"  {_value(value)};"]
        return [*lines, *([short] if len(short) < 120 else wrapped)]
    entries = [{key: item} for key, item in value.items()] if isinstance(value, dict) else value
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    texts = [_value(entry)[1:-1] if isinstance(value, dict) else _value(entry) for entry in entries]
    return [*lines, head + opening, *(f"  {text}," for text in texts), f"{closing}{tail};"]


def _runs() -> list[str]:
    """The fields of a tile: their types for the compiler, and for the decoder."""
    fields = tiles.FIELDS.items()
    return [
        "",
        "/** What a row shows in a tile, from left to right. */",
        "export interface Runs {",
        "  length: number;",
        *(f"  {name}: {_ARRAYS[dtype]}; // {meaning}" for name, (dtype, meaning) in fields),
        "}",
        "",
        "/** Fields of Runs in the order in which a tile is sent. */",
        "export const TILE_FIELDS = [",
        *(f'  ["{name}", {_ARRAYS[dtype]}],' for name, (dtype, _) in fields),
        "] as const;",
    ]


def text() -> str:
    """The file."""
    colours = palette.colours()
    units = "Record<string, number>"
    lines = [
        "// Made by `python -m tools.page_constants` from src/ncclscope/web. Do not edit.",
        *_constant("Pixels of a tile.", "TILE_WIDTH", tiles.WIDTH),
        *_runs(),
        *_constant("Bits of a bar's look.", "LOOK",
                   {_camel(name): getattr(bars, name) for name in _LOOKS}),
        *_constant("Kinds of rows that the page treats specially.", "KIND",
                   {_camel(name): getattr(kinds, name) for name in _KINDS}),
        *_constant("Rows that a filter of functions applies to.", "KINDS_WITH_FUNCTION",
                   list(kinds.WITH_FUNCTION), "readonly string[]"),
        *_constant("Rows whose states are marked.", "KINDS_WITH_STATES", list(marks.WITH_STATES),
                   "readonly string[]"),
        *_constant("Kinds in the order of the menu, with the text of their button.", "MENU_KINDS",
                   kinds.MENU, "Record<string, string>"),
        *_constant("Colour codes up to this one are functions; this one is any other function.",
                   "OTHER_FUNCTION", palette.OTHER),
        *_constant("Hue, saturation and lightness by colour code.", "COLOURS",
                   {str(code): list(colour.hsl) for code, colour in colours.items()},
                   "Record<number, [number, number, number]>"),
        *_constant("Names of colour codes.", "COLOUR_NAMES",
                   {str(code): colour.name for code, colour in colours.items()},
                   "Record<number, string>"),
        *_constant("Sources of times, by code.", "SOURCES", list(SOURCES), "readonly string[]"),
        *_constant("By code of a source how good its clock is: less is better.", "SOURCE_GRADES",
                   [GRADE_OF.get(name, max(GRADE_OF.values()) + 1) for name in SOURCES],
                   "readonly number[]"),
        *_constant("Percentiles of statistics: median and p99.", "PERCENTS", list(PERCENTS)),
        *_constant("With more bars in view, no lines between them are drawn.", "MOST_MARKED_BARS",
                   marks.MOST_BARS),
        *_constant("Letters of a search.", "LONGEST_SEARCH", search.LONGEST),
        *_constant("Operations that a search lists.", "MOST_MATCHES", queries.MOST_MATCHES),
        *_constant("A term of a search: key and value, or a comparison, or a word.", "SEARCH_TERM",
                   search.TERM),
        *_constant("Search keys whose value is a number: field of an operation.",
                   "SEARCH_NUMBER_KEYS", search.NUMBER_KEYS, "Record<string, string>"),
        *_constant("Fields in which a search looks for words.", "SEARCH_NAME_FIELDS",
                   list(search.NAME_COLUMNS), "readonly string[]"),
        *_constant("", "SEARCH_SIZE_UNITS", search.SIZE_UNITS, units),
        *_constant("", "SEARCH_TIME_UNITS_NS", search.TIME_UNITS_NS, units),
        *_constant("Operations of this state are neither counted nor found: their replays are.",
                   "CAPTURED_STATE", operation_rows.CAPTURED_STATE),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text())
