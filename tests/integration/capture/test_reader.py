"""The reader takes what is whole, counts what is not, and raises FormatError for anything else."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from ncclscope.capture import arena, dtypes, header, layout, metadata
from ncclscope.capture import process as process_module
from ncclscope.capture.arena import Chunk
from ncclscope.capture.call_counts import RECORD, merge_call_counts, read_call_counts
from ncclscope.capture.contents import contents_of_capture
from ncclscope.capture.dump_events import events_of
from ncclscope.capture.process import Process, _join_arena, open_process
from ncclscope.capture.reader import open_capture, resolve_capture
from ncclscope.capture.segment import checked_header
from ncclscope.errors import FormatError, NcclscopeError, UsageError
from tests.support.callback_script import Script, every_event
from tests.support.exhaustive import IS_EXHAUSTIVE, sample
from tests.support.paths import ROOT
from tests.support.player import ncclscope, player, recording, write_transcript


def record(script: Script, directory: Path, **variables: str) -> Path:
    path = write_transcript(directory / "script.jsonl", script.lines)
    played = player("play", path, env=recording(directory / "capture", **variables))
    assert played.returncode == 0, played.stderr
    return next((directory / "capture").iterdir())


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A process folder that must not be changed."""
    return record(every_event(6), tmp_path_factory.mktemp("recorded"))


@pytest.fixture
def folder(recorded: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(recorded, tmp_path / "capture" / recorded.name))


def event_count(process: Process) -> int:
    return sum(1 for _ in events_of(process))


def test_a_whole_capture(recorded: Path) -> None:
    process = open_process(recorded)
    assert process.ended
    assert process.damage.bad_slots == process.damage.torn_bytes == 0
    assert not process.damage.unreadable
    assert process.identity["mode"] == "full"
    assert process.rank == 1
    assert process.communicators[0].name == "tensor parallel"
    assert all(name == "ncclscope-playe" for name in process.threads.values())


def test_slots_are_views_of_the_file(recorded: Path) -> None:
    process = open_process(recorded)
    for segment in process.slots.segments:
        assert segment.base is not None
        assert not segment.flags.owndata


def read_everything(folder: Path) -> None:
    """Opens and decodes; only FormatError may come out."""
    try:
        event_count(open_process(folder))
    except FormatError as error:
        assert str(folder) in str(error)
    contents_of_capture(folder.parent)


def read_damaged(folder: Path, path: Path, damage: str) -> None:
    try:
        read_everything(folder)
    except Exception as error:
        raise AssertionError(f"{path.name}, {damage}") from error


STEP = 5  # no divisor of slots and fields, so that all parts of them are met


# Files are damaged where they are. Writing each variant as a new file takes longer than reading it.
def flip_each(folder: Path, path: Path, places: list[int]) -> None:
    """Read the process once for each place with this byte of the file changed: one bit of it or all."""
    whole = path.read_bytes()
    with path.open("r+b", buffering=0) as file:
        for place in sample(places, STEP):
            mask = 0xFF if place % 2 else 1 << (place // 2 % 8)
            os.pwrite(file.fileno(), bytes([whole[place] ^ mask]), place)
            read_damaged(folder, path, f"byte {place} flipped")
            os.pwrite(file.fileno(), whole[place : place + 1], place)
    assert path.read_bytes() == whole


def truncate_to_each(folder: Path, path: Path, lengths: Iterable[int]) -> None:
    """Read the process once for each length, the longest first."""
    whole = path.read_bytes()
    for length in sample(sorted(lengths, reverse=True), STEP):
        os.truncate(path, length)
        read_damaged(folder, path, f"truncated to {length} bytes")
    path.write_bytes(whole)


def places_in(path: Path, every: int) -> list[int]:
    """All places of a file, but only every so many of its header."""
    data = path.read_bytes()
    body = header.parse_header(data, path).header_bytes
    return [*range(0, body, every), *range(body, len(data))]


def test_records_of_call_counts_without_a_kind_do_not_count(folder: Path) -> None:
    path = folder / "tally"
    whole, before = path.read_bytes(), read_call_counts(path)
    place = header.parse_header(whole, path).header_bytes + RECORD["tally"].fields["kind"][1]
    path.write_bytes(whole[:place] + b"\0" + whole[place + 1 :])
    assert len(read_call_counts(path)) == len(before) - 1
    path.write_bytes(whole)


def test_a_header_that_ends_within_a_slot_is_refused(folder: Path) -> None:
    path = folder / "meta"
    whole = path.read_bytes()
    values = dict(zip(header.PLACES, header.STRUCT.unpack_from(whole), strict=True))
    values["header_bytes"] += 1
    data = header.STRUCT.pack(*values.values()) + whole[header.STRUCT.size :]
    with pytest.raises(FormatError, match="meta"):
        header.parse_header(data, path)


# All files begin with the same header, most of which is the schema, and one function reads it: that
# function gets it with every byte damaged, and whole processes are read with some.
def test_every_byte_of_a_header_flipped_and_every_truncation(folder: Path) -> None:
    path = folder / "meta"
    whole = path.read_bytes()
    for place in sample(range(header.parse_header(whole, path).header_bytes), STEP):
        mask = 0xFF if place % 2 else 1 << (place // 2 % 8)
        flipped = whole[:place] + bytes([whole[place] ^ mask]) + whole[place + 1 :]
        for data in (flipped, whole[:place]):
            try:
                checked_header(memoryview(data), path)
            except FormatError as error:
                assert str(path) in str(error)


@pytest.mark.parametrize(("name", "header_step"), [("meta", 8), ("log.000000", 16)])
def test_every_byte_flipped_and_every_truncation(folder: Path, name: str, header_step: int) -> None:
    """Of a capture as small as it can be: the events and what they cannot be read without."""
    (folder / "live").unlink()
    (folder / "tally").unlink()
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 16384
    path = folder / name
    places = places_in(path, header_step)
    flip_each(folder, path, places)
    truncate_to_each(folder, path, places)


def one_call() -> Script:
    """A call and its work: two keys that calls are counted by."""
    script = Script(6)
    script.init()
    names = {"func": "AllReduce", "dtype": "ncclFloat32"}
    call = script.start("CollApi", **names, count=8, root=0, stream="0", graph=0)
    script.stop(call)
    fields = {"algo": "RING", "proto": "LL", "nch": 1, "nwarps": 1, "send": "1000", "recv": "2000"}
    work = script.start("Coll", call, seq=0, count=8, root=0, **names, **fields)
    script.stop(work)
    return script


def with_few_buckets(path: Path, places: list[int]) -> list[int]:
    """Places of a tally file: nine of ten bytes are buckets of histograms, of which all are read alike."""
    body = header.parse_header(path.read_bytes(), path).header_bytes
    is_bucket = np.zeros(RECORD.itemsize, bool)
    times_offset = RECORD.fields["times"][1]
    for field, (dtype, offset, *_) in RECORD["times"].fields.items():
        if field.endswith("_histogram"):
            is_bucket[times_offset + offset :][: dtype.itemsize] = True
    assert is_bucket.mean() > 0.9
    return [
        place
        for place in places
        if place < body or place % 29 == 0 or not is_bucket[(place - body) % RECORD.itemsize]
    ]


@pytest.mark.parametrize("name", ["live", "tally"])
def test_every_byte_of_the_rewritten_files(name: str, tmp_path: Path) -> None:
    folder = record(one_call(), tmp_path)
    (folder / "log.000000").unlink()
    path = folder / name
    places = places_in(path, 16)
    assert len(places) > 500
    if name == "tally" and not IS_EXHAUSTIVE:
        places = with_few_buckets(path, places)
    flip_each(folder, path, places)
    truncate_to_each(folder, path, range(0, path.stat().st_size, 63))


def test_every_head_of_an_arena(tmp_path: Path) -> None:
    """A killed process's shared memory, flipped where readers look first."""
    folder = killed_process(tmp_path)
    path = folder / "arena"
    whole = path.read_bytes()
    start = header.parse_header(whole, path).chunks_offset
    flip_each(folder, path, [*range(header.BYTES), *range(start, start + 40 * 64)])
    truncate_to_each(folder, path, range(0, len(whole), 9999))


def killed_process(directory: Path) -> Path:
    """The folder of a process whose shared memory was salvaged."""
    path = write_transcript(directory / "script.jsonl", every_event(6).lines)
    env = recording(directory / "capture", NCCLSCOPE_ARENA="512K")
    assert player("play", path, "--end", "kill", env=env).returncode == -9
    resolve_capture(str(directory / "capture"))
    return next((directory / "capture").iterdir())


def test_a_process_that_writes_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What moved from the arena to the log in between would be in neither."""
    folder = killed_process(tmp_path)
    read, logs = process_module.read_arena, []

    def write_and_read(path: Path) -> object:
        logs.append(folder / "log.000000")
        if len(logs) == 1:
            with logs[0].open("ab") as log:
                log.write(bytes(64))
        return read(path)

    (folder / "log.000000").touch()
    monkeypatch.setattr(process_module, "read_arena", write_and_read)
    open_process(folder)
    assert len(logs) == 2


def test_a_slot_that_changes_while_it_is_read_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = killed_process(tmp_path)
    whole = [len(chunk.slots) for chunk in arena.read_arena(folder / "arena").chunks]
    slots_at, seen = arena._slots_at, set()

    def changing(fd: int, offset: int, size: int) -> object:
        slots = slots_at(fd, offset, size).copy()
        if offset not in seen and len(slots) > 2 and slots["kind"][2]:
            seen.add(offset)
            slots["flags"][2] ^= 1  # as it was a moment before
        return slots

    monkeypatch.setattr(arena, "_slots_at", changing)
    assert [len(chunk.slots) for chunk in arena.read_arena(folder / "arena").chunks] == whole
    assert seen


def test_what_a_chunk_held_before_it_was_used_again_is_no_slot_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a slot is whole and has a kind; only its number says that it is of another time."""
    folder = killed_process(tmp_path)
    whole = [len(chunk.slots) for chunk in arena.read_arena(folder / "arena").chunks]
    slots_at = arena._slots_at

    def with_an_older_slot(fd: int, offset: int, size: int) -> object:
        slots = slots_at(fd, offset, size).copy()
        slots["check"][2] += 1
        return slots

    monkeypatch.setattr(arena, "_slots_at", with_an_older_slot)
    found = [len(chunk.slots) for chunk in arena.read_arena(folder / "arena").chunks]
    assert found == [min(length, 1) for length in whole]


def test_a_torn_tail_costs_the_torn_slot(folder: Path) -> None:
    log = folder / "log.000000"
    before = event_count(open_process(folder))
    log.write_bytes(log.read_bytes()[:-30])
    process = open_process(folder)
    assert process.damage.torn_bytes == 34
    assert before - 2 <= event_count(process) < before


def test_a_flipped_slot_costs_itself(folder: Path) -> None:
    log = folder / "log.000000"
    whole = log.read_bytes()
    start = header.parse_header(whole, log).header_bytes
    damaged = bytearray(whole)
    damaged[start + 64 * 3 + 4] ^= 0xFF
    log.write_bytes(damaged)
    process = open_process(folder)
    assert process.damage.bad_slots == 1
    assert event_count(process) == event_count_of_whole(whole, log) - 1


def event_count_of_whole(whole: bytes, log: Path) -> int:
    log.write_bytes(whole)
    return event_count(open_process(log.parent))


def test_rubbish_between_blocks_is_skipped(folder: Path) -> None:
    log = folder / "log.000000"
    whole = log.read_bytes()
    start = header.parse_header(whole, log).header_bytes
    before = event_count(open_process(folder))
    log.write_bytes(whole[:start] + b"\x07" * 640 + whole[start:])
    process = open_process(folder)
    assert process.damage.bad_slots == 10
    assert event_count(process) == before


@pytest.mark.parametrize("name", ["meta", "log.000000"])
def test_a_missing_file_leaves_the_other(folder: Path, name: str) -> None:
    (folder / name).unlink()
    process = open_process(folder)
    assert process.identity["host"]


def test_a_newer_major_is_refused_by_name(folder: Path) -> None:
    for path in folder.iterdir():
        data = bytearray(path.read_bytes())
        data[10] = 9
        path.write_bytes(data)
    ours = rf"{layout.MAJOR}\.{layout.MINOR}"
    with pytest.raises(
        FormatError,
        match=rf"format 9\.{layout.MINOR} is newer than this release reads \({ours}\).*ncclscope 0",
    ):
        open_process(folder)


def test_an_oversized_header_is_refused(folder: Path) -> None:
    for path in folder.iterdir():
        data = bytearray(path.read_bytes())
        data[16:20] = (0xFFFFFFC0).to_bytes(4, "little")
        path.write_bytes(data)
    with pytest.raises(FormatError, match="header is damaged"):
        open_process(folder)


def test_empty_files_are_named(folder: Path) -> None:
    for path in folder.iterdir():
        path.write_bytes(b"")
    with pytest.raises(FormatError, match="0 bytes are too few"):
        open_process(folder)


def test_missing_and_unreadable_processes(folder: Path, tmp_path: Path) -> None:
    other = folder.parent / "other.1.2"
    other.mkdir()
    (other / "meta").write_bytes(b"not a capture" * 100)
    capture = open_capture(folder.parent)
    assert len(capture.processes) == 1
    assert "other.1.2/meta: it is not a capture file" in capture.unreadable[0]


def test_names_for_captures(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = folder.parent
    assert resolve_capture(str(capture)) == capture
    assert resolve_capture(str(folder)) == capture
    assert resolve_capture(str(tmp_path / "capt*")) == capture
    monkeypatch.chdir(tmp_path)
    assert resolve_capture(None) == tmp_path / "capture"
    with pytest.raises(UsageError, match="no such directory"):
        resolve_capture(str(tmp_path / "nothing"))
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UsageError, match="no process recorded anything"):
        resolve_capture(str(empty))
    monkeypatch.chdir(empty)
    with pytest.raises(NcclscopeError, match="no capture below"):
        resolve_capture(None)


def test_dump_of_a_damaged_capture_has_no_traceback(folder: Path) -> None:
    for path in folder.iterdir():
        path.write_bytes(b"x" * 5000)
    printed = ncclscope("dump", folder.parent)
    assert printed.returncode == 1
    assert "it is not a capture file" in printed.stderr
    assert "Traceback" not in printed.stderr


def test_tally_counts_what_dump_prints(recorded: Path) -> None:
    (tally,) = contents_of_capture(recorded.parent)
    process = open_process(recorded)
    assert tally.events == event_count(process) - len(process.communicators)
    assert tally.communicators == len(process.communicators)
    assert tally.ended


def test_hostile_names_do_not_reach_the_terminal(tmp_path: Path) -> None:
    script = Script(5)
    script.init(name="\x1b[31m<b>&\r\n")
    folder = record(script, tmp_path)
    printed = ncclscope("dump", folder.parent)
    assert "\x1b" not in printed.stdout
    assert "\\x1b[31m<b>" in printed.stdout


def test_a_long_name_is_cut_and_kept_apart(tmp_path: Path) -> None:
    script = Script(5)
    script.init(name="x" * 5000)
    script.init(name="short")
    first, second = open_process(record(script, tmp_path)).communicators
    assert first.name == "x" * 1024
    assert second.name == "short"


def test_an_arena_knows_more_of_a_slot_than_the_disk(recorded: Path) -> None:
    """A step that was started again, with no new state: the count alone is newer."""
    log = open_process(recorded).slots
    for number in range(len(log.blocks.key)):
        stream, first, slots = log.block_slots(number)
        steps = np.flatnonzero(slots["kind"] == layout.KINDS["ProxyStep"])
        if len(steps):
            break
    newer = slots.copy()
    newer["chan"][steps] += 7
    joined = _join_arena(log, (Chunk(stream << 48 | first, newer, 1, ""),))
    assert (joined.block_slots(number)[2]["chan"][steps] == newer["chan"][steps]).all()
    assert (newer["chan"][steps] >= 7).all()


def text_pieces(what: int, owner: int, text: str) -> list[np.void]:
    """A text as the plugin cuts it."""
    pieces = []
    for offset in range(0, len(text), 48):
        piece = np.zeros(1, dtypes.OURS.dtypes["Text"])[0]
        piece["kind"], piece["what"], piece["owner"] = layout.KINDS["Text"], what, owner
        piece["offset"], piece["length"] = offset, len(text)
        part = text[offset : offset + 48].encode()
        piece["text"][: len(part)] = np.frombuffer(part, np.uint8)
        pieces.append(piece)
    return pieces


def test_texts_whose_pieces_lie_between_each_other() -> None:
    first, second = "a" * 130, "b" * 130
    pairs = zip(
        text_pieces(layout.TEXT_COMM_NAME, 1, first),
        text_pieces(layout.TEXT_COMM_NAME, 2, second),
        strict=True,
    )
    pieces = np.array([piece for pair in pairs for piece in pair])
    meta = metadata.by_kind(pieces.view(dtypes.ANY_SLOT))
    assert metadata.texts(meta, layout.TEXT_COMM_NAME) == [(1, first), (2, second)]


def test_a_capture_without_clock_pairs_starts_at_the_right_time(folder: Path) -> None:
    expected = {e["id"]: e["start_ns"] for e in events_of(open_process(folder))}
    (folder / "meta").unlink()
    process = open_process(folder)
    found = {e["id"]: e["start_ns"] for e in events_of(process)}
    assert found
    for name, start_ns in found.items():
        assert abs(start_ns - expected[name]) < 1e6, name
    start = process.header
    offset = start.start_realtime_ns - start.start_monotonic_ns
    assert process.clock.realtime_offset_ns == offset


def tally_record(count: int, calls: int, gpu_ns: list[int], bits: int = 0) -> np.void:
    record = np.zeros(1, RECORD)[0]
    record["tally"]["kind"], record["tally"]["level"] = layout.KINDS["Tally"], layout.LEVEL_WORK
    record["tally"]["count"], record["tally"]["bits"] = count, bits
    record["tally"]["calls"], record["tally"]["count_sum"] = calls, calls * count
    times = record["times"]
    times["gpu_count"], times["gpu_sum_ns"] = len(gpu_ns), sum(gpu_ns)
    times["gpu_min_ns"], times["gpu_max_ns"] = min(gpu_ns, default=0), max(gpu_ns, default=0)
    times["untimed"][0] = 1
    return record


def test_times_stand_where_the_calls_were_counted() -> None:
    """A table of calls may fold sizes of which the tally file has times apart."""
    records = np.array(
        [
            tally_record(1000, 3, [10, 30]),
            tally_record(512, 9, [], layout.TALLY_FOLDED),
            tally_record(700, 0, [5, 50]),
            tally_record(800, 0, [7]),
        ]
    )
    exact, folded = merge_call_counts(records, records["tally"][:0])
    assert (exact.key.count, exact.calls, int(exact.times["gpu_count"])) == (1000, 3, 2)
    assert (folded.key.count, folded.calls, int(folded.times["gpu_count"])) == (512, 9, 3)
    least, most = int(folded.times["gpu_min_ns"]), int(folded.times["gpu_max_ns"])
    assert (least, most, int(folded.times["gpu_sum_ns"])) == (5, 50, 62)
    assert int(folded.times["untimed"].sum()) == 3


def test_clock_over_a_long_uptime(recorded: Path) -> None:
    clock = open_process(recorded).clock
    ticks = clock.ticks.astype(np.uint64)
    assert (np.abs(clock.to_ns(ticks) - clock.monotonic_ns) <= 1).all()
    assert layout.SLOT_BYTES == 64


def test_dump_of_an_event_that_does_not_exist(recorded: Path) -> None:
    printed = ncclscope("dump", "--event", "Nonsense", recorded.parent)
    assert printed.returncode == 2
    assert printed.stderr.startswith("ncclscope: cannot choose events: Nonsense: NCCL has no such")
    assert "Events are Comm, Group, Coll, P2p, " in printed.stderr
    known = ncclscope("dump", "--json", "--event", "Comm", "--event", "Coll", recorded.parent)
    assert known.returncode == 0
    assert len(known.stdout.splitlines()) == 2


def test_dump_of_a_profile_says_what_it_lacks(tmp_path: Path) -> None:
    folder = record(every_event(6), tmp_path, mode="profile")
    printed = ncclscope("dump", "--json", folder.parent)
    assert printed.returncode == 0
    assert "1 process recorded in mode profile: totals, no events" in printed.stderr
    assert "`ncclscope report` shows them" in printed.stderr


def test_dump_points_to_its_page(recorded: Path) -> None:
    words = ncclscope("dump", "--help").stdout.split()
    pages = {word for word in words if word.endswith(".md")}
    assert str(ROOT / "docs/verbs/dump.md") in pages
    assert all((ROOT / page).is_file() for page in pages)
    printed = ncclscope("dump", "--json", recorded.parent)
    assert "profile" not in printed.stderr
