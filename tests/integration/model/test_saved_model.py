"""A saved model that is not what was saved: it is made again, and the report stays the same."""

import contextlib
import io
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ncclscope.cli import main
from ncclscope.model.build import open_model
from ncclscope.model.schema import ANY_NUMBER, NONE, TABLES, value_range
from ncclscope.model.store.checksums import REFERENCES, _digest, _stamp, checksum
from ncclscope.model.store.fingerprint import fingerprint
from ncclscope.model.store.saved_model import load_current
from tests.support.exhaustive import sample
from tests.support.player import TRANSCRIPTS
from tests.support.writer import from_transcript

NAME = "2.31.2-v7-2ranks"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture with its saved model."""
    capture = tmp_path_factory.mktemp("saved") / "capture"
    from_transcript(TRANSCRIPTS / NAME, capture)
    open_model(capture)
    assert (capture / "model" / "manifest.json").is_file()
    return capture


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    """A copy with times of files kept, so that its model is current."""
    shutil.copytree(whole, tmp_path / "copy")
    return tmp_path / "copy"


def report(capture: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["report", "--json", str(capture)]) == 0
    made: dict[str, Any] = json.loads(capsys.readouterr().out)
    del made["capture"]
    return made


@pytest.fixture(scope="module")
def expected(whole: Path) -> dict[str, Any]:
    """The report of the whole capture."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["report", "--json", str(whole)]) == 0
    made: dict[str, Any] = json.loads(printed.getvalue())
    del made["capture"]
    return made


ACCOUNT = "account.json"  # kept by `report`


def manifest_of(capture: Path) -> dict[str, Any]:
    """What is saved of a model: its names and numbers, and checksums of all columns."""
    saved: dict[str, Any] = json.loads((capture / "model" / "manifest.json").read_text())
    return {name: value for name, value in saved.items() if name not in ("seal", "stamps")}


def made_again(capture: Path) -> dict[str, Any]:
    """The manifest of the model that a reader of the capture gets: what it holds is what is saved."""
    model = open_model(capture)
    saved = manifest_of(capture)
    rows = {name: len(next(iter(columns.values()))) for name, columns in model.tables.items()}
    assert saved["rows"].items() <= rows.items()
    assert saved["communicator_names"] == model.communicator_names
    return saved


@pytest.fixture(scope="module")
def whole_model(whole: Path) -> dict[str, Any]:
    return manifest_of(whole)


def is_current(capture: Path) -> bool:
    return load_current(capture, fingerprint(capture)) is not None


def test_a_whole_model_is_used_again(copy: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in (copy / "model").iterdir()}
    assert is_current(copy)
    open_model(copy)
    assert before == {file: file.stat().st_mtime_ns for file in (copy / "model").iterdir()}


def test_a_model_that_another_command_removes_is_still_read(
    copy: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was saved a moment ago, and another command puts its own in that place."""
    shutil.rmtree(copy / "model")
    rename = Path.rename

    def removed_at_once(self: Path, target: Path) -> Path:
        renamed = rename(self, target)
        if renamed.name == "model":
            shutil.rmtree(renamed)
        return renamed

    monkeypatch.setattr(Path, "rename", removed_at_once)
    model, expected = open_model(copy), open_model(whole)
    for table, columns in expected.tables.items():
        for name, values in columns.items():
            assert np.array_equal(model.tables[table][name], values), (table, name)


def test_the_model_of_a_quicker_command_stays(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of that command may be reading it."""
    inode = (copy / "model").stat().st_ino
    seal = open_model(copy).seal
    monkeypatch.setattr("ncclscope.model.build.load_current", lambda *_: None)  # not there yet
    assert open_model(copy).seal == seal
    assert (copy / "model").stat().st_ino == inode
    assert [path.name for path in copy.glob("*model*")] == ["model"]


def test_columns_without_unknown_values_are_told(whole: Path) -> None:
    model = open_model(whole)
    for table, columns in model.tables.items():
        known = {name for name, values in columns.items() if (values != NONE).all()}
        assert model.whole[table] == known
    assert {"event", "state"} < model.whole["operations"] < set(model.tables["operations"])


def test_any_damaged_file_is_noticed(
    whole: Path, copy: Path, expected: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    draw = random.Random(3)
    files = sorted(file.name for file in (whole / "model").iterdir() if file.name != ACCOUNT)
    for number, name in sample(list(enumerate(files)), 3):
        file, kept = copy / "model" / name, (whole / "model" / name).read_bytes()
        state = file.stat()
        how = number % 4
        if how == 0 and kept:  # a bit
            data = bytearray(kept)
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            file.write_bytes(data)
        elif how == 1:
            file.write_bytes(kept[: draw.randrange(len(kept))])
        elif how == 2:
            file.write_bytes(kept + bytes(8))
        else:
            file.unlink()
        if file.exists():  # as a disk would do it
            os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
        assert not is_current(copy), f"{name}, {how}"
        if number % 21 == 0:
            assert report(copy, capsys) == expected, f"{name}, {how}"
            assert is_current(copy)
        else:
            file.write_bytes(kept)
            assert is_current(copy), name


def test_a_damaged_account_is_made_again(
    whole: Path, copy: Path, expected: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The model is whole without it."""
    kept, file = (whole / "model" / ACCOUNT).read_bytes(), copy / "model" / ACCOUNT
    for damaged in (kept[: len(kept) // 2], kept + bytes(8), kept.replace(b"1", b"2"), b""):
        file.write_bytes(damaged)
        assert is_current(copy)
        assert report(copy, capsys) == expected
        assert file.read_bytes() == kept


def forge(capture: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes a manifest and makes its seal fit."""
    file = capture / "model" / "manifest.json"
    manifest = json.loads(file.read_text())
    change(manifest)
    manifest["seal"] = _digest(manifest)
    file.write_text(json.dumps(manifest))


def seal(capture: Path, file: Path) -> None:
    """Seals a column's file as it is now, as if it had been saved so: checksum and stamp fit."""
    name, changes = file.name, {"checksums": checksum(file), "stamps": _stamp(file)}

    def change(manifest: dict[str, Any]) -> None:
        for part, value in changes.items():
            manifest[part][name] = value

    forge(capture, change)


FORGED: dict[str, Callable[[dict[str, Any]], None]] = {
    "no rows": lambda m: m.update(rows={}),
    "fewer rows": lambda m: m["rows"].update(operations=1),
    "rows below zero": lambda m: m["rows"].update(operations=-5),
    "rows of a text": lambda m: m["rows"].update(operations="9"),
    "very many rows": lambda m: m["rows"].update(operations=1 << 70),
    "a word twice": lambda m: m["words"].update(function=["AllReduce"] * 9),
    "a word that is none": lambda m: m["words"]["function"].__setitem__(0, None),
    "words missing": lambda m: m["words"].pop("reason"),
    "too few words": lambda m: m["words"].update(function=["AllReduce"]),
    "too many words": lambda m: m["words"].update(tag=[str(n) for n in range(1000)]),
    "names missing": lambda m: m.update(communicator_names=[]),
    "names of numbers": lambda m: m.update(communicator_names=[7] * len(m["communicator_names"])),
    "a process too few": lambda m: m["processes"].pop(),
    "a process with more": lambda m: m["processes"][0].update(more=1),
    "a process on no node": lambda m: m["processes"][0].update(node=99),
    "a process that is a list": lambda m: m.update(processes=[[1, 2]]),
    "a rank that is a text": lambda m: m["processes"][0].update(global_rank="0"),
    "a folder with a zero byte": lambda m: m["processes"][0].update(folder="\0"),
    "a folder elsewhere": lambda m: m["processes"][0].update(folder="../other"),
    "no nodes": lambda m: m.update(nodes=[]),
    "completeness of nothing": lambda m: m.update(completeness={}),
    "calls as a list": lambda m: m["completeness"].update(calls=[1]),
    "untimed as a list": lambda m: m["completeness"].update(untimed=[["a", 1]]),
    "notes as a text": lambda m: m["completeness"].update(notes="fine"),
    "no clocks": lambda m: m.update(clocks=[]),
    "a clock without knots": lambda m: m["clocks"][0].update(local_ns=[]),
    "a clock of texts": lambda m: m["clocks"][0].update(offset_ns=["0"]),
    "an offset of half": lambda m: m.update(realtime_offset_ns=0.5),
    "checksums missing": lambda m: m.pop("checksums"),
    "checksums of a list": lambda m: m.update(checksums=[]),
    "whole columns of a list": lambda m: m.update(whole=[]),
    "whole columns of numbers": lambda m: m.update(whole={"operations": [1]}),
    "whole columns of another table": lambda m: m.update(whole={"events": []}),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_manifest_is_not_believed(
    what: str, copy: Path, whole_model: dict[str, Any]
) -> None:
    forge(copy, FORGED[what])
    assert not is_current(copy)
    assert made_again(copy) == whole_model


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", "null", '"a"', "[" * 100_000, '{"fingerprint": NaN}', "\x00\xff"]
)
def test_a_manifest_that_is_none(text: str, copy: Path, whole_model: dict[str, Any]) -> None:
    (copy / "model" / "manifest.json").write_text(text)
    assert made_again(copy) == whole_model


def test_a_report_of_a_forged_manifest_is_that_of_the_capture(
    copy: Path, expected: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    forge(copy, FORGED["fewer rows"])
    assert report(copy, capsys) == expected


@pytest.mark.parametrize("column", ["communicator", "process", "node", "instance", "function"])
def test_forged_columns_are_not_believed(
    column: str, copy: Path, expected: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """References to rows that are not there, with checksums that fit."""
    file = copy / "model" / f"operations.{column}"
    file.write_bytes(b"\x70" * file.stat().st_size)
    forge(copy, lambda m: m["checksums"].update({file.name: checksum(file)}))
    assert not is_current(copy)
    assert report(copy, capsys) == expected


def test_out_of_range_numbers_are_not_believed_whatever_seals_them(whole: Path, copy: Path) -> None:
    """Numbers that no row, code or time has, sealed as the writer seals: with checksums and stamps
    of the very files.
    """
    folder = copy / "model"
    rows = json.loads((folder / "manifest.json").read_text())["rows"]
    checked = 0
    for table, columns in TABLES.items():
        for column in columns:
            file = folder / f"{table}.{column.name}"
            if not rows[table] or not file.exists() or column.name in ANY_NUMBER:
                continue
            kept = file.read_bytes()
            values = np.frombuffer(kept, column.dtype).copy()
            ends = (np.iinfo(values.dtype).min, np.iinfo(values.dtype).max)
            for value in ends if checked % 2 else reversed(ends):
                least, most = value_range(column)
                is_index = column.words or column.name in REFERENCES
                if least <= value <= most and not is_index:
                    continue
                values[-1] = value
                file.write_bytes(values.tobytes())
                seal(copy, file)
                assert not is_current(copy), f"{table}.{column.name} = {value}"
                checked += 1
                break
            file.write_bytes(kept)
            seal(copy, file)
    assert checked > 60
    assert is_current(copy)


def test_a_gap_in_a_column_that_should_have_none_is_not_believed(copy: Path) -> None:
    """Readers look values up in such a column without asking first."""
    file = copy / "model" / "members.node"
    dtype = next(column.dtype for column in TABLES["members"] if column.name == "node")
    values = np.frombuffer(file.read_bytes(), dtype).copy()
    assert is_current(copy)
    values[0] = NONE
    file.write_bytes(values.tobytes())
    seal(copy, file)
    assert not is_current(copy)


def test_files_that_are_none(
    copy: Path, expected: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipe would keep its reader waiting, a link leads elsewhere, a folder cannot be read."""
    for number, make in enumerate((os.mkfifo, lambda path: path.symlink_to("/dev/zero"), os.mkdir)):
        for name in ("manifest.json", "operations.start_ns"):
            file = copy / "model" / name
            file.unlink()
            make(file)
            assert not is_current(copy), (number, name)
            assert report(copy, capsys) == expected
            assert is_current(copy)
