"""Metadata read piece by piece says what the whole file says."""

from pathlib import Path

import pytest

from ncclscope.capture import layout, metadata
from ncclscope.capture.header import parse_header
from ncclscope.capture.metadata_tail import MetadataTail
from ncclscope.capture.segment import Damage
from tests.support.player import TRANSCRIPTS
from tests.support.writer import from_transcript


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    capture = tmp_path_factory.mktemp("growing") / "c"
    from_transcript(TRANSCRIPTS / "2.28.9-v5-3ranks-hang", capture)
    return next(capture.glob("*/meta")).read_bytes()


def whole(path: Path) -> tuple[object, ...]:
    header, slots = metadata.read_meta_file(path, Damage())
    meta = metadata.by_kind(slots)
    return (
        metadata.communicators(meta),
        dict(metadata.texts(meta, layout.TEXT_STRING)),
        metadata.counters(meta, header, None),
        len(meta.of("End")) > 0,
    )


def said(growing: MetadataTail) -> tuple[object, ...]:
    return growing.communicators, growing.strings, growing.counters, growing.ended


@pytest.mark.parametrize("step", [37, 64, 1000, 1 << 20])
def test_pieces_are_the_whole(tmp_path: Path, written: bytes, step: int) -> None:
    path = tmp_path / "meta"
    growing = MetadataTail(path)
    assert not growing.read()  # there is no file yet
    begun = parse_header(memoryview(written), path).header_bytes
    for end in [*range(begun, len(written), step), len(written)]:
        path.write_bytes(written[:end])
        assert growing.read()
    assert said(growing) == whole(path)
    assert growing.communicators


def test_slots_out_of_order_are_left_out(tmp_path: Path, written: bytes) -> None:
    path = tmp_path / "meta"
    growing = MetadataTail(path)
    path.write_bytes(written)
    growing.read()
    before = said(growing)
    path.write_bytes(written + written[-64 * 10 :])  # the end once more
    assert growing.read()
    assert said(growing) == before == whole(path)


def test_another_file_in_its_place(tmp_path: Path, written: bytes) -> None:
    path = tmp_path / "meta"
    growing = MetadataTail(path)
    path.write_bytes(written + written[-64:])
    growing.read()
    path.write_bytes(written[: len(written) - 64])
    assert growing.read()
    assert said(growing)[:2] == whole(path)[:2]
    path.write_bytes(b"no capture file")
    assert not growing.read()
