"""Writes the declarations that Python and docs/format.md share with C: `python -m tools.generate`.

C declares the capture format, NCCL's interface and the compiled loops from lists (X-macros).
`ncclscope-player layout` prints these lists as JSON; from that come capture/_layout.py,
nccl/_events.py, arrays/_abi.py and the tables of docs/format.md. Build the player first:
`cmake --build build/editable`.
"""

import json
import re
import subprocess
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ncclscope.native import player_path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "ncclscope"
PAGE = ROOT / "docs" / "format.md"
_SPAN = ("parent", "t0", "t1")  # of every event; described once on the page
_C_TYPES = {
    "void": "None", "int": "c_int", "double": "c_double",
    "i8": "c_int8", "i16": "c_int16", "i32": "c_int32", "i64": "c_int64",
    "u8": "c_uint8", "u16": "c_uint16", "u32": "c_uint32", "u64": "c_uint64",
}  # fmt: skip
Lists = dict[str, Any]  # what the player prints


def lists() -> Lists:
    """What C declares."""
    printed: Lists = json.loads(subprocess.check_output([player_path(), "layout"]))
    return printed


# ---- text of Python modules ----
def _module(what: str, source: str, lines: Iterable[str]) -> str:
    head = f"{what}\n\nMade by tools/generate.py from {source}: do not edit.\n"
    return "\n".join([f'"""{head}"""', "", "# fmt: off", *lines, ""])


def _filled(items: Iterable[str], width: int = 95) -> list[str]:
    """Items with commas, as many in a line as fit."""
    lines = [""]
    for item in items:
        if lines[-1] and len(lines[-1]) + len(item) + 2 > width:
            lines.append("")
        lines[-1] += f" {item}," if lines[-1] else f"{item},"
    return lines


def _wrapped(name: str, opening: str, items: Iterable[str], closing: str) -> str:
    """An assignment of a tuple or dict."""
    return "\n".join([f"{name} = {opening}", *(f"    {line}" for line in _filled(items)), closing])


def _quoted(names: Iterable[str]) -> list[str]:
    return [f'"{name}"' for name in names]


def _hex(value: int) -> str:
    return f"0x{value:X}"


def _fields(fields: list[list[Any]], sizes: dict[str, int]) -> str:
    """Fields in the notation of the schema that every file carries."""
    return " ".join(
        f"{name}:{kind}" + (f":{size // sizes[kind]}" if size > sizes[kind] else "")
        for name, kind, _, size in fields
    )


_SIZES = {"u8": 1, "char": 1, "u16": 2, "u32": 4, "i32": 4, "u64": 8, "i64": 8}


def _text(name: str, text: str) -> str:
    """A long string, a line of source for each piece of it."""
    pieces = []
    for line in text.splitlines(keepends=True):
        for piece in textwrap.wrap(line.rstrip("\n"), 88, drop_whitespace=False):
            pieces.append(piece)
        if line.endswith("\n"):
            pieces[-1] += "\\n"
    return "\n".join([f"{name} = (", *(f'    "{piece}"' for piece in pieces), ")"])


def layout_module(c: Lists) -> str:
    """capture/_layout.py."""
    constants = {name.removeprefix("FORMAT_"): value for name, value in c["constants"].items()}
    magic = repr(c["magic"].encode("latin-1"))[1:].strip("'")
    kinds = [f'"{name}": {slot["kind"]}' for name, slot in c["slots"].items()]
    lines = [
        f'MAGIC = b"{magic}"',
        *(f"{name} = {value}" for name, value in constants.items()),
        _wrapped("MODES", "{", (f'{number}: "{name}"' for name, number, _ in c["modes"]), "}"),
        "# Why an operation has no GPU time, in the order of Times.untimed.",
        _wrapped("UNTIMED", "(", _quoted(c["untimed"]), ")"),
        "# Where GPU times come from.",
        _wrapped(
            "GPU_TIMINGS", "{", (f'{number}: "{name}"' for name, number in c["gpu_timings"]), "}"
        ),
        "# Reasons of LaunchTime, EventClock and GraphReplays, by number.",
        _wrapped("TIMING_REASONS", "(", _quoted(c["timing_reasons"]), ")"),
        "# Slot kinds by name.",
        _wrapped("KINDS", "{", kinds, "}"),
        "# Counters by number.",
        _wrapped("COUNTERS", "(", _quoted(c["counters"]), ")"),
        "# Fields in what 1.0 calls spare bytes, with the minor version that added each.",
        _wrapped(
            "ADDED_FIELDS",
            "{",
            (f'"{field}": {minor}' for field, minor in c["added_fields"].items()),
            "}",
        ),
        "# Fields as in the schema. Of a slot's head, and of the file header:",
        _text("HEAD", _fields(c["head"], _SIZES)),
        _text("HEADER", _fields(c["header"], _SIZES)),
        "# The schema that files carry.",
        _text("SCHEMA", c["schema"]),
    ]
    what = "The capture format."
    return _module(what, "native/include/ncclscope/format.h", lines)


def events_module(c: Lists) -> str:
    """nccl/_events.py."""
    first = [f'"{name}": {version}' for name, version in c["events"]]
    states = [f'{number}: "{name}"' for number, name in c["states"]]
    masks = [f'"{name}": {_hex(events)}' for name, _, events in c["modes"]]
    lines = [
        "# In the order of their bits; the kind of an event's slot is 1 + its bit.",
        _wrapped("EVENTS", "(", _quoted(name for name, _ in c["events"]), ")"),
        "# First interface version that has the event.",
        _wrapped("FIRST_INTERFACE", "{", first, "}"),
        f"OLDEST_INTERFACE = {min(c['interfaces'])}",
        f"NEWEST_INTERFACE = {max(c['interfaces'])}",
        *(f"FIRST_WITH_{what} = {version}" for what, version in c["first_with"].items()),
        "# Events that each mode asks NCCL for.",
        _wrapped("MODE_EVENTS", "{", masks, "}"),
        _wrapped("STATE_NAMES", "{", states, "}"),
        *(f"{name} = {_hex(number)}" for name, number in c["net_data"].items()),
    ]
    return _module("NCCL's profiler interface.", "native/src/nccl_abi.h and config.h", lines)


def _class_name(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _c_type(declared: str, structs: Iterable[str]) -> str:
    """The ctypes expression of a C type."""
    plain = declared.removeprefix("const ").strip()
    base = plain.removesuffix("*").strip()
    if plain.endswith("*"):
        name = base.removeprefix("struct ")
        return f"POINTER({_class_name(name)})" if name in structs else "c_void_p"
    if base.startswith("struct "):
        return _class_name(base.removeprefix("struct "))
    return _C_TYPES[base]


def _struct(name: str, fields: list[list[Any]], structs: Iterable[str]) -> str:
    rows = []
    for field, declared, length in fields:
        kind = _c_type(declared, structs) + (f" * {length}" if length else "")
        rows.append(f'        ("{field}", {kind}),')
    head = [f"class {_class_name(name)}(Structure):", "    _fields_ = ("]
    return "\n".join([*head, *rows, "    )", "", ""])


def _function(result: str, name: str, arguments: str) -> str:
    """Result and arguments; pointers are addresses, so that arrays and structs fit alike."""
    given = [] if arguments == "(void)" else arguments.strip("()").split(",")
    kinds = ["c_void_p" if "*" in one else _C_TYPES[one.split()[0]] for one in given]
    lines = _filled(kinds, 88)
    if len(lines) == 1 and len(name) + len(lines[0]) < 75:
        one_tuple = lines[0] if len(kinds) == 1 else lines[0].removesuffix(",")
        return f'    "{name}": ({_C_TYPES[result]}, ({one_tuple})),'
    body = "\n".join(f"        {line}" for line in lines)
    return f'    "{name}": ({_C_TYPES[result]}, (\n{body}\n    )),'


def _by_width(name: str) -> tuple[str, int]:
    """c_uint8 before c_uint32."""
    digits = re.search(r"\d+$", name)
    return name.rstrip("0123456789"), int(digits[0]) if digits else 0


def abi_module(c: Lists) -> str:
    """arrays/_abi.py."""
    structs = c["structs"]
    body = [
        *(_struct(name, struct["fields"], structs) for name, struct in structs.items()),
        *(f"{', '.join(names)} = range({len(names)})" for names in c["enums"].values()),
        "",
        "# Result and arguments by name.",
        "FUNCTIONS = {",
        *(_function(*function) for function in c["functions"]),
        "}",
    ]
    used = sorted(set(re.findall(r"\bc_\w+\b", "\n".join(body))), key=_by_width)
    lines = [
        "from ctypes import (",
        *(f"    {name}," for name in ("POINTER", "Structure", *used)),
        ")",
        "",
        "# Of the lists; a library that says another number was built from other sources.",
        f"VERSION = {_hex(c['abi_version'])}",
        "",
        "",
        *body,
    ]
    return _module("The compiled loops' structs and functions.", "native/arrays/arrays.h", lines)


# ---- the page ----
def _meanings(rows: list[str], column: int) -> dict[str, str]:
    """What the page says of each field or counter, by its name without quotes."""
    cells = [[cell.strip() for cell in row.strip().strip("|").split("|")] for row in rows]
    return {row[column].strip("`"): row[-1] for row in cells if len(row) > column}


def _row(owner: str, name: str, cells: Iterable[object], meanings: dict[str, str]) -> str:
    if name not in meanings:
        raise SystemExit(
            f"{PAGE.name} does not say what {owner}.{name} means: add a row to its table with the "
            f"name and a meaning; offset and type are filled in"
        )
    return f"| {' | '.join(map(str, cells))} | {meanings[name]} |"


def _type(kind: str, size: int) -> str:
    return kind if size == _SIZES[kind] else f"{kind}[{size // _SIZES[kind]}]"


def _field_rows(owner: str, fields: list[list[Any]], rows: list[str]) -> list[str]:
    meanings = _meanings(rows, 1)
    return [
        _row(owner, name, (offset, name, _type(kind, size)), meanings)
        for name, kind, offset, size in fields
        if not name.startswith("spare")
    ]


def _flag_rows(c: Lists, rows: list[str]) -> list[str]:
    bits = {n[5:]: b for n, b in c["constants"].items() if n.startswith("FLAG_")}
    meanings = _meanings(rows, 1)
    return [_row("flags", name, (f"0x{bit:02X}", name), meanings) for name, bit in bits.items()]


def _counter_rows(c: Lists, rows: list[str]) -> list[str]:
    meanings = _meanings(rows, 1)
    return [
        _row("counters", name, (number, f"`{name}`"), meanings)
        for number, name in enumerate(c["counters"])
    ]


def _marked_rows(c: Lists, table: str, rows: list[str]) -> list[str]:
    """The rows of a table that a comment names."""
    if table == "flags":
        return _flag_rows(c, rows)
    if table == "counters":
        return _counter_rows(c, rows)
    event = c["slots"]["Group"]["fields"]
    fields = {
        "header": c["header"],
        "head": c["head"],
        "times": c["times"],
        "event": [field for field in event if field[0] in _SPAN],
    }
    return _field_rows(table, fields[table], rows)


def _kind_rows(c: Lists, kind: str, rows: list[str]) -> list[str]:
    is_event = c["slots"][kind]["kind"] <= c["constants"]["EVENT_KINDS"]
    fields = c["slots"][kind]["fields"]
    return _field_rows(kind, [f for f in fields if not is_event or f[0] not in _SPAN], rows)


def _check_headings(c: Lists, text: str) -> None:
    named = {name: int(number) for name, number in re.findall(r"^### (\w+) \((\d+)\)$", text, re.M)}
    kinds = {name: slot["kind"] for name, slot in c["slots"].items()}
    if named != kinds:
        differing = sorted(set(named.items()) ^ set(kinds.items()))
        raise SystemExit(f"{PAGE.name} and format.h have different slot kinds: {differing}")


def _histograms(numbers: dict[str, int]) -> str:
    """How the buckets of times are cut."""
    first, each = numbers["TIME_FIRST_OCTAVE"], numbers["TIME_BUCKETS_PER_OCTAVE"]
    count = numbers["TIME_BUCKETS"]
    sentence = (
        f"Histograms have {count} buckets of ns, {each} to an octave. "
        f"Bucket 0 is [0, {1 << first}). "
        f"Bucket *b* > 0 begins at 2^({first} + ⌊(*b* − 1) / {each}⌋) × "
        f"(1 + ((*b* − 1) mod {each}) / {each}). Bucket {count - 1} has no upper end."
    )
    lines = textwrap.wrap(sentence, 120)
    return "\n".join(lines).removeprefix("Histograms have ")


def _with_numbers(c: Lists, text: str) -> str:
    """The page with the sizes and counts in its sentences as C has them."""
    numbers = c["constants"]
    version = f"{numbers['FORMAT_MAJOR']}.{numbers['FORMAT_MINOR']}"
    header, times = (sum(size for *_, size in c[fields]) for fields in ("header", "times"))
    for pattern, value in (
        (r"(?<=^# The capture format, version )\d+\.\d+", version),
        (r"(?<=This page describes )\d+\.\d+", version),
        (r"(?<=begins with this header of )\d+", header),
        (r"(?<=an array of records of )\d+", numbers["SLOT_BYTES"] + times),
        (r"(?<=counter page hold )\d+", len(c["counters"])),
        (r"(?<=counters for each of )\d+", numbers["COUNTER_EVENTS"]),
        (r"(?<=^Histograms have )(?s:.*?)(?=\n\n)", _histograms(numbers)),
    ):
        text, found = re.subn(pattern, str(value), text, flags=re.M)
        if found != 1:
            raise SystemExit(f"{PAGE.name}: {found} places match {pattern}, not one")
    return text


def page(c: Lists, text: str) -> str:
    """docs/format.md with tables as C has them. What fields mean is the page's own."""
    _check_headings(c, text)
    text = _with_numbers(c, text)
    out: list[str] = []
    lines = text.splitlines()
    kind = table = ""  # whose table comes next
    at = 0
    while at < len(lines):
        line = lines[at]
        heading = re.fullmatch(r"### (\w+) \(\d+\)", line)
        marker = re.fullmatch(r"<!-- table: (\w+) -->", line)
        if line.startswith("#"):
            kind = heading[1] if heading else ""
        if marker:
            table = marker[1]
        is_fields = line == "| offset | field | type | meaning |"
        out.append(line)
        at += 1
        if line.startswith("|") and (table or (is_fields and kind)):
            end = at
            while end < len(lines) and lines[end].startswith("|"):
                end += 1
            rows = lines[at + 1 : end]
            made = _marked_rows(c, table, rows) if table else _kind_rows(c, kind, rows)
            out += [lines[at], *made]
            at, kind, table = end, "", ""
    return "\n".join(out) + "\n"


def outputs(c: Lists) -> dict[Path, str]:
    """What each file must contain."""
    return {
        SOURCE / "capture" / "_layout.py": layout_module(c),
        SOURCE / "nccl" / "_events.py": events_module(c),
        SOURCE / "arrays" / "_abi.py": abi_module(c),
        PAGE: page(c, PAGE.read_text()),
    }


def main() -> None:
    """Writes what has changed, and names it."""
    for path, text in outputs(lists()).items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
