"""Captures as an attacker or a broken disk would leave them: any byte of any file, headers, names,
schemas, saved models whose seals fit, and other tools' files.
"""

import json
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ncclscope.capture.header import BYTES, PLACES, STRUCT, parse_header
from ncclscope.errors import FormatError
from ncclscope.model.schema import TABLES
from ncclscope.model.store import checksums
from ncclscope.model.store.checksums import with_seal
from ncclscope.model.store.fingerprint import fingerprint
from tests.support.corruption import Damager
from tests.support.mutation_subjects import FORGED_NAME

_NUMBERS = (0, 1, 63, 64, 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 63)
_TEXTS = ("", "\x1b[31mred", "a\nb", "../../etc", "9" * 400, "-1", "\x00", "é" * 50, "%h%p", "nan")
_VALUES = (-2, -1, 0, 1, 1 << 31, (1 << 62) - 1, -(1 << 62), (1 << 63) - 1, -(1 << 63))
_TEXT_FILES = (".json", ".jsonl", ".log", ".csv")
_WORD = re.compile(rb'-?\d+(?:\.\d+)?|"[^"\\]{0,80}"|true|false|null|[\[\]{}:,]')
_TOKENS = (
    b"0", b"-1", b"1e400", b"NaN", b"9" * 25, b"1" + b"0" * 400, b"-0.0", b"1.5", b"null", b"true",
    b"[]", b"{}", b'""', b'"\\u001b[31m"', b'"\\ud800"', b"[" * 2000, b'{"a":' * 200, b"9223372036854775807",
    b"4294967296", b'"' + b"x" * 5000 + b'"', b"\x00", b"\xff\xfe",
)  # fmt: skip
# What is damaged, and how often.
KINDS = {
    "log": 24, "meta": 20, "tally": 8, "live": 8, "arena": 8, "context": 4, "samples": 5,
    "saved model": 14, "other kinds of file": 5, "several files": 5, "dataset": 6, "archive": 2,
    "other tools' files": 8,
}  # fmt: skip
_FILES = {"context": "*.*.*/context.jsonl", "samples": "system.*.jsonl", "log": "*.*.*/log.*"}


class Mutator:
    """Damages one copy of a capture; the same seed damages the same places."""

    def __init__(self, seed: int) -> None:
        self._seed, self._draw = seed, random.Random(seed)

    def mutate(self, subject: Path, kind: str) -> list[str]:
        """Damages files of that kind in one to four ways, and says in which."""
        said: list[str] = []
        for _ in range(self._draw.choice((1, 1, 2, 4))):
            if kind == "saved model":
                said.append(self._model(subject))
                continue
            files = files_of(subject, kind)
            if files:
                said.append(self._way(kind)(self._draw.choice(files)))
        return said

    def _way(self, kind: str) -> Callable[[Path], str]:
        if kind == "other kinds of file":
            return self._file
        if kind in ("dataset", "archive", "other tools' files", "samples", "context"):
            return self._foreign
        ways = (self._slots, self._bytes, self._header, self._identity, self._schema, self._cut)
        return self._draw.choices(ways, (8, 4, 4, 3, 2, 1))[0]

    def _rewrite(self, file: Path, data: bytes) -> None:
        file.write_bytes(data)
        os.utime(file, ns=(0, self._draw.randrange(1 << 60)))  # a saved model is out of date

    def _slots(self, file: Path) -> str:
        if not file.name.startswith(("meta", "log")):
            return self._bytes(file)
        try:
            return Damager(self._seed).damage(file)
        except (FormatError, IndexError, ValueError):  # damaged too much already
            return self._bytes(file)

    def _bytes(self, file: Path) -> str:
        data = bytearray(file.read_bytes())
        if not data:
            return f"{file.name}: empty"
        for _ in range(self._draw.choice((1, 4, 64))):
            at = self._draw.randrange(len(data))
            length = self._draw.choice((1, 2, 4, 8))
            number = self._draw.choice((*_NUMBERS, self._draw.getrandbits(64)))
            data[at : at + length] = number.to_bytes(9, "little")[:length]
        self._rewrite(file, data)
        return f"{file.name}: bytes"

    def _cut(self, file: Path) -> str:
        """The end is missing, or is there twice."""
        data = file.read_bytes()
        at = self._draw.randrange(len(data) + 1)
        twice = self._draw.random() < 0.3
        self._rewrite(file, data + data[at:] if twice else data[:at])
        return f"{file.name}: {'longer' if twice else 'cut'} from {at}"

    def _foreign(self, file: Path) -> str:
        """A file of any format: bytes, and of texts its words."""
        way = self._draw.choice((self._bytes, self._cut, self._words, self._words, self._words))
        return (
            self._bytes(file) if file.suffix not in _TEXT_FILES and way != self._cut else way(file)
        )

    def _words(self, file: Path) -> str:
        """Other numbers, texts and brackets in a text."""
        data, said = file.read_bytes(), []
        for _ in range(self._draw.choice((1, 1, 3))):
            words = list(_WORD.finditer(data))
            if not words:
                return self._bytes(file)
            word, token = self._draw.choice(words), self._draw.choice(_TOKENS)
            data = data[: word.start()] + token + data[word.end() :]
            said.append(f"{word[0][:30]!r} is {token[:30]!r}")
        self._rewrite(file, data)
        return f"{file.name}: {', '.join(said)}"

    def _header(self, file: Path) -> str:
        data = bytearray(file.read_bytes())
        if len(data) < BYTES:
            return self._bytes(file)
        values = dict(zip(PLACES, STRUCT.unpack_from(data), strict=True))
        name = self._draw.choice([name for name in PLACES if name not in ("magic", "endian")])
        old = values[name]
        values[name] = self._draw.choice((*_NUMBERS, old + 64, max(old - 64, 0), old // 2))
        try:
            STRUCT.pack_into(data, 0, *values.values())
        except Exception:  # too large for its field
            values[name] = 255
            STRUCT.pack_into(data, 0, *values.values())
        self._rewrite(file, data)
        return f"{file.name}: {name} = {values[name]}"

    def _identity(self, file: Path) -> str:
        """Another text in the place of a value of the identity, of the same length."""
        data = bytearray(file.read_bytes())
        try:
            header = parse_header(bytes(data), file)
        except FormatError:
            return self._bytes(file)
        if not header.identity:
            return self._bytes(file)
        name = self._draw.choice(sorted(header.identity))
        old = header.identity[name].encode()
        at = data.find(name.encode() + b"\0" + old)
        text = self._draw.choice(_TEXTS).encode()
        new = (text * len(old))[: len(old)].ljust(len(old), b"7")
        if at >= 0 and old:
            at += len(name) + 1
            data[at : at + len(old)] = new
        self._rewrite(file, data)
        return f"{file.name}: {name} = {new!r}"

    def _schema(self, file: Path) -> str:
        data = bytearray(file.read_bytes())
        try:
            schema = parse_header(bytes(data), file).schema.encode()
        except FormatError:
            return self._bytes(file)
        numbers = list(re.finditer(rb"\d+", schema))
        start = data.find(schema)
        if not numbers or start < 0:
            return self._bytes(file)
        chosen = self._draw.choice(numbers)
        digits = "".join(self._draw.choice("0123456789x") for _ in range(len(chosen[0])))
        data[start + chosen.start() : start + chosen.end()] = digits.encode()
        self._rewrite(file, data)
        return f"{file.name}: schema {chosen[0]!r} is {digits}"

    def _file(self, file: Path) -> str:
        """Another kind of file, or none."""
        way = self._draw.choice(("gone", "empty", "folder", "swapped", "fifo"))
        other = self._draw.choice(sorted(file.parent.iterdir()))
        content = other.read_bytes() if other.is_file() else b""
        file.unlink()
        if way == "empty":
            file.touch()
        elif way == "folder":
            file.mkdir()
        elif way == "fifo":
            os.mkfifo(file)
        elif way == "swapped":
            file.write_bytes(content)
        return f"{file.name}: {way}"

    def _model(self, capture: Path) -> str:
        """A saved model with other numbers, whose checksums and fingerprint fit; mostly its stamps
        do as well.
        """
        folder = capture / "model"
        if self._draw.random() < 0.15:  # nothing fits
            files = sorted(folder.iterdir())
            return self._foreign(self._draw.choice(files)) if files else "model: empty"
        try:
            manifest = json.loads((folder / "manifest.json").read_text())
            tables = [table for table, rows in manifest["rows"].items() if rows and table in TABLES]
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return "model: its manifest was damaged before"
        if self._draw.random() < 0.7 and tables:
            table = self._draw.choice(tables)
            column = self._draw.choice(TABLES[table])
            file = folder / f"{table}.{column.name}"
            if not file.is_file():
                return "model: as it was"
            values = np.fromfile(file, column.dtype)
            span = np.iinfo(values.dtype)
            value = int(np.clip(self._draw.choice(_VALUES), span.min, span.max))
            places = self._draw.sample(range(len(values)), min(len(values), 3))
            values[places if self._draw.random() < 0.7 else slice(None)] = value
            values.tofile(file)
            said = f"model: {table}.{column.name} = {value}"
        else:
            said = self._manifest(manifest)
        manifest["fingerprint"] = fingerprint(capture)
        sealed = with_seal(folder, {name: v for name, v in manifest.items() if name != "seal"})
        if self._draw.random() < 0.3:
            del sealed[checksums._STAMPS]
        sealed["seal"] = checksums._digest(sealed)
        (folder / "manifest.json").write_text(json.dumps(sealed))
        return said

    def _manifest(self, manifest: dict[str, object]) -> str:
        """Another number or text somewhere in the manifest."""
        parent: object = manifest
        key: object = self._draw.choice([name for name in manifest if name not in ("rows", "seal")])
        path = [key]
        while True:
            value = parent[key]  # type: ignore[index]
            if isinstance(value, dict) and value:
                parent, key = value, self._draw.choice(sorted(value))
            elif isinstance(value, list) and value:
                parent, key = value, self._draw.randrange(len(value))
            else:
                break
            path.append(key)
        new: object = self._draw.choice((*_VALUES, *_TEXTS, None, [], {}, 1.5, True))
        parent[key] = new  # type: ignore[index]
        return f"model: {path} = {new!r}"


def files_of(subject: Path, kind: str) -> list[Path]:
    """The files of one kind in a copy."""
    if kind in ("dataset", "archive", "other tools' files"):
        pattern = "**/*"
    elif kind in ("other kinds of file", "several files"):
        pattern = "*.*.*/*"
    else:
        pattern = _FILES.get(kind, f"*.*.*/{kind}")
    return sorted(path for path in subject.glob(pattern) if path.is_file())


def has_kind(subject: Path, kind: str) -> bool:
    """Whether a capture can be damaged in that way."""
    if kind == "saved model":
        return (subject / "model" / "manifest.json").exists()
    return bool(files_of(subject, kind))


def mutated_copy(whole: Path, copy: Path, kind: str, seed: int) -> list[str]:
    """Makes a damaged copy; says what was done to it. A saved model that would be made again is
    not copied: it has a file for each column.
    """
    unused = () if kind in ("saved model", "live", "samples") else ("model",)
    shutil.copytree(whole, copy, symlinks=True, ignore=shutil.ignore_patterns(*unused))
    if whole.name.startswith(FORGED_NAME) and seed % 3:
        return [whole.name]
    return Mutator(seed).mutate(copy, kind)


def leave_in_shared_memory(folder: Path, capture: Path, shared: Path, seed: int) -> None:
    """Moves a process's arena to where salvage finds it, as if that process had recorded to
    `capture`, whose path is as long as the one that it had.
    """
    data, number = (folder / "arena").read_bytes(), folder.name.rpartition(".")[2]
    name = folder.name.removesuffix(number) + str(seed).zfill(len(number))[-len(number) :]
    pattern = rb"(capture\0)[^\0]{%d}(?=\0)" % len(os.fsencode(capture))
    data = re.sub(pattern, lambda old: old[1] + os.fsencode(capture), data, count=1)
    data = data.replace(b"folder\0" + folder.name.encode(), b"folder\0" + name.encode(), 1)
    (shared / name).write_bytes(data)
    (folder / "arena").unlink()
    folder.rename(folder.with_name(name))
