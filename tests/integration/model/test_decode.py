"""`ncclscope decode`: whatever is left of a capture gives the values of the raw one."""

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ncclscope.capture.process import open_process
from ncclscope.cli import main
from ncclscope.model.build import open_model
from ncclscope.model.decode_capture import decode_capture
from ncclscope.model.detail_schema import DETAILS
from ncclscope.model.detail_tables import details_of
from ncclscope.model.store.decoded_files import DECODED_MANIFEST, log_is_incomplete, process_of
from tests.support.player import TRANSCRIPTS
from tests.support.writer import SyntheticSpec, Work, from_transcript, synthetic

_MIX = (Work(weight=3), Work("Reduce", 1024, root=1), Work("SendRecv", 2048))


def _mixed(capture: Path) -> None:
    """Two attempts on two nodes; in each, one process is missing and one was killed."""
    spec = SyntheticSpec(
        processes=4, operations=30, ranks_per_node=2, communicators=((0, 1), (2, 3), (0, 1, 2, 3)),
        mix=_MIX, attempts=2, missing=frozenset({3}), killed=frozenset({1}),
    )  # fmt: skip
    synthetic(capture, spec)


MADE: dict[str, Callable[[Path], object]] = {
    "mixed": _mixed,
    "every sort of event": partial(from_transcript, TRANSCRIPTS / "2.31.2-v7-2ranks"),
}


def _values(capture: Path) -> tuple[dict[str, Any], list[dict[str, list[Any]]]]:
    """The saved model with checksums of all columns, and all tables that are made of events."""
    model = open_model(capture)
    saved = json.loads((capture / "model" / "manifest.json").read_text())
    details = [
        {name: values.tolist() for name, values in columns.items()}
        for table in DETAILS
        for columns in details_of(model, table)
    ]
    left_out = ("seal", "stamps", "fingerprint")
    return {name: saved[name] for name in saved if name not in left_out}, details


def _logs(capture: Path) -> list[Path]:
    return sorted(capture.glob("*/log.*"))


@pytest.mark.parametrize("name", MADE)
def test_every_value_is_that_of_the_raw_capture(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = tmp_path / "capture"
    MADE[name](capture)
    expected, processes = _values(capture), len(_logs(capture))
    without_end = sum(not open_process(path.parent).ended for path in _logs(capture))
    assert expected[0]["rows"]["operations"] > 0
    assert main(["decode", str(capture)]) == 0
    assert len(_logs(capture)) == processes
    times = {path: path.stat().st_mtime_ns for path in capture.glob("*/decoded.*")}
    assert main(["decode", "--remove-raw", str(capture)]) == 0
    again = {path: path.stat().st_mtime_ns for path in capture.glob("*/decoded.*")}
    assert again == times, "a second run does not decode again"
    assert len(_logs(capture)) == without_end < processes
    assert (without_end > 0) == (name == "mixed")
    assert _values(capture) == expected
    printed = capsys.readouterr().out
    kept = f"log kept: {without_end} processes without an end"
    assert (kept in printed) == (without_end > 0)
    assert main(["decode", "--remove-raw", str(capture)]) == 0
    assert f"decoded before: {processes - without_end} processes" in capsys.readouterr().out


class _CrashError(BaseException):
    """The command is killed."""


def _crashing(monkeypatch: pytest.MonkeyPatch, steps: int) -> Callable[[], int]:
    """Lets so many files be renamed or deleted, and none after them; returns how many were left."""
    left = [steps]

    def counted(do: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise _CrashError
            return do(*arguments, **options)

        return step

    for name in ("replace", "unlink"):
        monkeypatch.setattr(Path, name, counted(getattr(Path, name)))
    return lambda: left[0]


def _assert_same(folder: Path, expected: Any) -> None:
    answer = process_of(folder)
    assert not isinstance(answer, str), answer
    assert answer[1].keys() == expected[1].keys()
    assert all(np.array_equal(answer[1][name], values) for name, values in expected[1].items())
    assert answer[0].counts == expected[0].counts


def test_a_crash_at_any_point_leaves_a_whole_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = tmp_path / "raw"
    synthetic(raw, SyntheticSpec(processes=1, operations=20))
    (folder,) = (path.parent for path in _logs(raw))
    extra = folder / "log.000001"  # a second segment, so that removal takes several steps
    shutil.copy(folder / "log.000000", extra)
    extra.write_bytes(extra.read_bytes()[: os.path.getsize(extra) // 64 * 64])
    expected = process_of(folder)
    crashes = 0
    while True:
        capture = tmp_path / f"crash{crashes}"
        shutil.copytree(raw, capture)
        own = capture / folder.name
        with monkeypatch.context() as patch:
            left = _crashing(patch, crashes)
            try:
                decode_capture(capture, remove_raw=True)
                finished = True
            except _CrashError:
                finished = False
        if _logs(capture) == [own / path.name for path in _logs(raw)]:
            assert not log_is_incomplete(own)
        else:
            _assert_same(own, expected)
            decode_capture(capture, remove_raw=True)  # a second run goes on
            assert not _logs(capture)
            _assert_same(own, expected)
        if finished:
            break
        crashes += 1
    assert left() == 0
    assert crashes > 8, "tables, the manifest and both segments"


@pytest.fixture(scope="module")
def decoded_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    capture = tmp_path_factory.mktemp("decoded") / "capture"
    synthetic(capture, SyntheticSpec(processes=2, operations=20, communicators=((0, 1),)))
    decode_capture(capture, remove_raw=True)
    return capture


@pytest.fixture
def decoded(decoded_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(decoded_once, tmp_path / "capture"))


@pytest.mark.parametrize("name", [DECODED_MANIFEST, "decoded.operations.parquet"])
@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_damaged_files_are_named_and_the_rest_is_read(
    name: str, damage: str, decoded: Path
) -> None:
    path = sorted(decoded.glob(f"*/{name}"))[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data if damage == "flipped" else data[: len(data) // 2])
    model = open_model(decoded)
    assert len(model.processes) == 1
    assert "cannot read decoded files of" in " ".join(model.completeness.notes)


def test_verbs_that_need_events_say_that_logs_were_removed(
    decoded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["dump"], ["status"], ["pack", "-o", str(tmp_path / "p.tar.gz")]):
        assert main([*words, str(decoded)]) == 0
        assert "of 2 processes: `ncclscope decode --remove-raw` removed" in capsys.readouterr().err
    assert main(["report", str(decoded)]) == 0
    assert capsys.readouterr().err == ""


def test_channels_and_launches_may_stay_behind(
    decoded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`rsync --exclude` leaves them out: what needs operations alone answers as before, and what
    shows them says so.
    """
    questions = (["report"], ["diagnose"], ["compare", str(decoded)])

    def answers() -> list[str]:
        shutil.rmtree(decoded / "model", ignore_errors=True)
        assert all(main([*words, str(decoded), "--json"]) in (0, 3, 5) for words in questions)
        return capsys.readouterr().out.splitlines()

    whole = answers()
    for table in ("channels", "launches"):
        for path in decoded.glob(f"*/decoded.{table}.parquet"):
            path.unlink()
    assert answers() == whole
    for words in (["timeline", "--html"], ["export", "--to", "perfetto", "-o"]):
        assert main([*words, str(tmp_path / "made"), str(decoded)]) == 0
        said = "no channels, launches of 2 processes: their decoded files are not here"
        assert said in capsys.readouterr().err


def test_decoded_files_are_a_fraction_of_the_log(tmp_path: Path) -> None:
    """Operations of mode trace are a twentieth of their log, with channels and launches a tenth."""
    synthetic(tmp_path / "c", SyntheticSpec(processes=1, operations=5_000))
    logs = sum(path.stat().st_size for path in _logs(tmp_path / "c"))
    decode_capture(tmp_path / "c", remove_raw=False)
    files = {path.name: path.stat().st_size for path in (tmp_path / "c").glob("*/decoded.*")}
    assert files["decoded.operations.parquet"] <= logs / 20
    assert sum(files.values()) <= logs / 10
    left_out = files["decoded.channels.parquet"] + files["decoded.launches.parquet"]
    assert sum(files.values()) - left_out <= logs / 20
