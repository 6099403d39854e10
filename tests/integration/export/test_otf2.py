"""OTF2 archives, read by otf2-print and by the library's reader: what is in them is the model."""

import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

import ncclscope as package
from ncclscope.analysis.selection import Selection
from ncclscope.api import Capture
from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.export.otf2 import COLLECTIVES, write_otf2
from tests.support.player import TRANSCRIPTS, ncclscope
from tests.support.writer import SyntheticSpec, from_transcript, synthetic

needs_printer = pytest.mark.skipif(
    shutil.which("otf2-print") is None,
    reason="*** otf2-print is missing (Debian's otf2-tools): archives are NOT checked by it ***",
)
ALL = Selection()
EVENT = re.compile(r"^([A-Z_]+) +(\d+) +(\d+)  (.*)$")


def capture_of(name: str, path: Path) -> Capture:
    from_transcript(TRANSCRIPTS / name, path)
    return package.open(path)


def printed(archive: Path, *options: str) -> str:
    done = subprocess.run(
        ["otf2-print", *options, str(archive / "traces.otf2")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip()
    return done.stdout


def events(archive: Path) -> list[tuple[str, int, int, str, dict[str, str]]]:
    """Records in the order of time: kind, location, time, what it says, attributes."""
    found: list[tuple[str, int, int, str, dict[str, str]]] = []
    for line in printed(archive).splitlines():
        if match := EVENT.match(line):
            found.append((match[1], int(match[2]), int(match[3]), match[4], {}))
        elif "ADDITIONAL ATTRIBUTES" in line:
            for name, value in re.findall(
                r'\("(\w+)" <\d+>; \w+; "?([^";)]*)"?(?: <\d+>)?\)', line
            ):
                found[-1][4][name] = value
    return found


def rows(capture: Capture, condition: str = "part_of is null") -> list[dict[str, Any]]:
    relation = capture.operations.filter(condition)
    return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


@needs_printer
@pytest.mark.parametrize("name", ["2.28.9-v5-4ranks", "2.28.9-v5-3ranks-hang"])
def test_regions_are_operations(name: str, tmp_path: Path) -> None:
    capture = capture_of(name, tmp_path / "c")
    written = write_otf2(capture.model, ALL, tmp_path / "a")
    expected = {row["operation"]: row for row in rows(capture)}
    assert written.count == len(expected)
    found, stacks = {}, defaultdict(list)
    for kind, location, time, text, attributes in events(tmp_path / "a"):
        region = text.partition('"')[2].partition('"')[0]
        if kind == "ENTER":
            stacks[location].append((region, time, attributes))
        elif kind == "LEAVE":
            entered, start, said = stacks[location].pop()
            assert entered == region
            found[int(said["operation"])] = (region, start, time, said)
    assert not any(stacks.values())
    assert set(found) == set(expected)
    for number, row in expected.items():
        region, start, end, said = found[number]
        assert region == f"nccl{row['function']}"
        if row["start_ns"] is not None:
            assert start == row["start_ns"]
        if row["state"] == "done" and row["end_ns"] is not None:
            assert end == row["end_ns"]
        for column in (
            "size_bytes",
            "call_order",
            "wait_ns",
            "algorithm",
            "datatype",
            "source",
            "state",
        ):
            assert said.get(column) == (None if row[column] is None else str(row[column]))


@needs_printer
def test_records_say_who_took_part(tmp_path: Path) -> None:
    capture = capture_of("2.28.9-v5-4ranks", tmp_path / "c")
    write_otf2(capture.model, ALL, tmp_path / "a")
    found = events(tmp_path / "a")
    calls = rows(capture)
    collectives = Counter(
        COLLECTIVES[row["function"]][0] for row in calls if row["function"] in COLLECTIVES
    )
    ends = [text for kind, _, _, text, _ in found if kind == "MPI_COLLECTIVE_END"]
    assert Counter(re.search(r"Operation: (\w+)", text)[1] for text in ends) == collectives
    assert sum(kind == "MPI_COLLECTIVE_BEGIN" for kind, *_ in found) == len(ends)
    for function, column in (("Send", "Receiver"), ("Recv", "Sender")):
        kind = f"MPI_{function.upper()}"
        said = Counter(
            (
                int(re.search(rf"{column}: (\d+)", text)[1]),
                int(re.search(r"Length: (\d+)", text)[1]),
            )
            for one, _, _, text, _ in found
            if one == kind
        )
        assert said == Counter(
            (row["peer_communicator_rank"], row["size_bytes"])
            for row in calls
            if row["function"] == function
        )
    gathered = next(text for text in ends if "ALLGATHER" in text)
    sent, received = (
        int(re.search(rf"{word}: (\d+)", gathered)[1]) for word in ("Sent", "Received")
    )
    assert received == 4 * sent
    rooted = [text for text in ends if "BCAST" in text]
    assert all("Root: 0" in text for text in rooted)
    definitions = printed(tmp_path / "a", "-G")
    assert len(re.findall(r"^LOCATION_GROUP ", definitions, re.M)) == 4
    assert re.search(r'^COMM +0  Name: "world"', definitions, re.M)
    assert re.search(r'^GROUP .*"world".*COMM_GROUP.*4 Members', definitions, re.M)
    first = min(time for _, _, time, _, _ in found)
    assert f"Ticks per Seconds: 1000000000, Global Offset: {first}" in definitions


@needs_printer
def test_a_rank_alone_names_no_absent_peers(tmp_path: Path) -> None:
    capture = capture_of("2.28.9-v5-4ranks", tmp_path / "c")
    done = ncclscope("export", capture.path, "--to", "otf2", "--rank", "2", "-o", tmp_path / "a")
    assert done.returncode == 0, done.stderr
    found = events(tmp_path / "a")
    assert not [kind for kind, *_ in found if kind in ("MPI_SEND", "MPI_RECV")]
    own = rows(capture, "part_of is null and global_rank = 2")
    assert sum(kind == "ENTER" for kind, *_ in found) == len(own) > 10
    assert "1 Member" in printed(tmp_path / "a", "-G")


@needs_printer
def test_names_are_printable(tmp_path: Path) -> None:
    name = 'a"b\n\x00<c>' + "z" * 10_000
    synthetic(tmp_path / "c", SyntheticSpec(processes=2, operations=3, communicator_names=(name,)))
    write_otf2(package.open(tmp_path / "c").model, ALL, tmp_path / "a")
    assert 'a"b\\n\\x00<c>zzz' in printed(tmp_path / "a", "-G")


def test_the_reader_of_the_library_reads_it(tmp_path: Path) -> None:
    reader = pytest.importorskip("otf2.reader")
    capture = capture_of("2.28.9-v5-2ranks", tmp_path / "c")
    write_otf2(capture.model, ALL, tmp_path / "a")
    with reader.open(str(tmp_path / "a" / "traces.otf2")) as trace:
        enters = [event for _, event in trace.events if type(event).__name__ == "Enter"]
    assert len(enters) == len(rows(capture))


def test_without_the_library_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = capture_of("2.28.9-v5-2ranks", tmp_path / "c")
    monkeypatch.setitem(sys.modules, "otf2", None)
    with pytest.raises(
        NcclscopeError,
        match=r"otf2 is not installed. Install it with `pip install otf2`",
    ):
        write_otf2(capture.model, ALL, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_what_is_there_is_replaced_only_when_told(tmp_path: Path) -> None:
    capture = capture_of("2.28.9-v5-2ranks", tmp_path / "c")
    write_otf2(capture.model, ALL, tmp_path / "a")
    with pytest.raises(UsageError, match="there is an OTF2 archive already"):
        write_otf2(capture.model, ALL, tmp_path / "a")
    write_otf2(capture.model, ALL, tmp_path / "a", force=True)

    def full(done: int, of: int) -> None:
        raise OSError(28, "No space left on device")

    before = sorted(path.name for path in tmp_path.rglob("*"))
    with pytest.raises(NcclscopeError, match="No space left on device"):
        write_otf2(capture.model, ALL, tmp_path / "a", force=True, progress=full)
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
