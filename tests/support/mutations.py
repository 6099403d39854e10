"""Captures as an attacker or a broken disk would leave them: any byte of any file, headers, names,
schemas, and saved models whose checksums fit.
"""

import json
import os
import random
import re
import shutil
from pathlib import Path

import numpy as np

from ncclscope.capture.header import BYTES, PLACES, STRUCT, parse_header
from ncclscope.errors import FormatError
from ncclscope.model.build import open_model
from ncclscope.model.schema import TABLES
from ncclscope.model.store import checksums
from ncclscope.model.store.checksums import with_seal
from ncclscope.model.store.saved_model import fingerprint
from tests.support.corruption import Damager
from tests.support.player import TRANSCRIPTS, player, recording
from tests.support.writer import SyntheticSpec, from_transcript, synthetic, write_scenario

_NUMBERS = (0, 1, 63, 64, 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 63)
_TEXTS = ("", "\x1b[31mred", "a\nb", "../../etc", "9" * 400, "-1", "\x00", "é" * 50, "%h%p", "nan")
_VALUES = (-2, -1, 0, 1, 1 << 31, (1 << 62) - 1, -(1 << 62), (1 << 63) - 1, -(1 << 63))
_TRANSCRIPT_NAMES = ("2.23.4-v1-2ranks", "2.28.9-v5-3ranks-hang", "2.31.2-v7-2ranks")


def whole_captures(below: Path) -> list[Path]:
    """Captures of many kinds, to be copied and damaged."""
    from ncclscope.simulation.scenario import Call, Range, Scenario

    for name in _TRANSCRIPT_NAMES:
        from_transcript(TRANSCRIPTS / name, below / name)
    spec = SyntheticSpec(processes=3, operations=40, ranks_per_node=1, killed=(1,))
    synthetic(below / "three-nodes", spec)
    ranges = (Range("step {step}", 0, 1), Range("Optimizer.step#Adam.step", 2, ms=1, source=2))
    calls = (Call("world", "AllReduce", 1024),) * 2
    write_scenario(below / "ranges", Scenario(steps=8, calls=calls, ranges=ranges))
    for mode in ("profile", "full"):
        env = recording(below / f"played-{mode}", mode, RANK="0", WORLD_SIZE="1")
        assert player("load", "--collectives", 60, env=env).returncode == 0
    captures = sorted(path for path in below.iterdir() if path.is_dir())
    for path in captures:
        open_model(path)  # each has a saved model, which the copies can have forged
    return captures


class Mutator:
    """Damages one copy of a capture; the same seed damages the same places."""

    def __init__(self, seed: int) -> None:
        self._seed, self._draw = seed, random.Random(seed)

    def mutate(self, capture: Path) -> list[str]:
        """Damages the capture in one to four ways, and says in which."""
        ways = (self._slots, self._bytes, self._header, self._identity, self._schema, self._file)
        chosen = self._draw.choices(ways, (8, 4, 4, 3, 2, 1), k=self._draw.choice((1, 1, 2, 4)))
        said = []
        for way in chosen:
            files = sorted(file for file in capture.glob("*.*.*/*") if file.is_file())
            if files:
                said.append(way(self._draw.choice(files)))
        if self._draw.random() < 0.25 and (capture / "model" / "manifest.json").exists():
            said.append(self._model(capture))
        return said

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
        """A saved model with other numbers, whose checksums and fingerprint fit. The stamps of its
        files are not forged: with them a model is taken for the one that was saved, unread.
        """
        folder = capture / "model"
        manifest = json.loads((folder / "manifest.json").read_text())
        tables = [table for table, rows in manifest["rows"].items() if rows]
        if self._draw.random() < 0.7 and tables:
            table = self._draw.choice(tables)
            column = self._draw.choice(TABLES[table])
            file = folder / f"{table}.{column.name}"
            if not file.exists():
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


def mutated_copy(whole: Path, copy: Path, seed: int) -> list[str]:
    """Makes a damaged copy of a capture; says what was done to it."""
    shutil.copytree(whole, copy, symlinks=True)
    return Mutator(seed).mutate(copy)
