"""Hostile files of other tools: one sentence, nothing executed, memory bounded."""

import gzip
import json
import os
import pickle
import random
import sqlite3
import struct
import subprocess
import sys
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from ncclscope.errors import FormatError, UsageError
from ncclscope.ingest import files, ncclsee, safe_pickle
from ncclscope.ingest.capture_topology import topology_of
from ncclscope.ingest.formats import FORMATS, format_of, import_files, plan_import
from ncclscope.ingest.json_stream import CutError, elements
from ncclscope.ingest.nccl_log import parse_line
from ncclscope.ingest.nccl_log_topology import topology_of_logs
from ncclscope.ingest.records import ImportReport, hash_of, nanoseconds, number
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE
from tests.support import foreign_samples

CHANCE = random.Random(7)


def gathered(tmp_path: Path, *paths: Path, form: str | None = None) -> Model:
    folder = tmp_path / "gathered"
    folder.mkdir()
    return import_files(plan_import(paths, form), folder)


# ---- pickles ----
class Bomb:
    """Unpickled, it would leave a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "value",
    [
        {"entries": [{"a": 1, "b": [1.5, None, True, (1, 2), (1, 2, 3), (4,), ()]}], 7: "ü" * 300},
        [],
        list(range(-3, 2000, 7)),
        {"n": -(1 << 40), "m": 1 << 62, "text": "x" * 70_000},
    ],
)
def test_data_are_read_as_pickle_reads_them(protocol: int, value: Any) -> None:
    assert safe_pickle.loads(pickle.dumps(value, protocol)) == value


def test_what_is_shared_stays_shared() -> None:
    frame = {"name": "train"}
    value = safe_pickle.loads(pickle.dumps([frame, frame], 2))
    assert value[0] is value[1]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_of_a_pickle_is_executed(tmp_path: Path, protocol: int) -> None:
    trap = tmp_path / "executed"
    data = pickle.dumps({"entries": [Bomb(trap)], "pg_config": {}}, protocol)
    with pytest.raises(safe_pickle.PickleError):
        safe_pickle.loads(data)
    dump = tmp_path / "rank_0"
    dump.write_bytes(data if protocol >= 2 else b"\x80\x02" + data)
    with pytest.raises(FormatError, match=r"refused, nothing of it was run|damaged|unknown"):
        gathered(tmp_path, dump, form="flight-recorder")
    assert not trap.exists()
    pickle.loads(data)
    assert trap.exists(), "the trap works"


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\x80\x02", b"\x80\x02.", b"\x80\x02(.", b"\x80\x02]]a", b"\x80\x02a.", b"\x80\x02e.",
        b"\x80\x02h\x05.", b"\x80\x02(K\x01K\x02u.", b"\x80\x02}]K\x01s.", b"\x80\x02l.",
        b"\x80\x02X\xff\xff\xff\xffabc.", b"\x80\x04\x8d" + b"\xff" * 8, b"\x80\x02G\0\0.",
        b"\x80\x02\x8b\xff\xff\xff\x7f", b"\x80\x02I99999999999999999999999\n.",
        b"\x80\x022.", b"\x80\x02q\x01.", b"\x80\x02\x86.", b"\x80\x02d.", b"garbage",
        b"\x80\x02cos\nsystem\n(S'true'\ntR.", b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x02ios\nsystem\n.", b"\x80\x02P1\n.", b"\x80\x02Q.", b"\x80\x02\x82\x01.",
    ],
)  # fmt: skip
def test_damaged_pickles(data: bytes) -> None:
    with pytest.raises(safe_pickle.PickleError):
        safe_pickle.loads(data)


def test_pickles_damaged_by_chance() -> None:
    data = bytearray(pickle.dumps(foreign_samples.hung_dump(0), 2))
    step = 37
    for place in range(0, len(data), step):
        for value in (0, 0x63, 0x52, 0x72, 0xFF, data[place] ^ 1):
            changed = bytes(data[:place]) + bytes([value]) + bytes(data[place + 1 :])
            try:
                safe_pickle.loads(changed)
            except safe_pickle.PickleError:
                continue


def test_a_number_far_out_in_the_memo_takes_no_memory() -> None:
    data = b"\x80\x02]r\xff\xff\xff\xff."
    assert safe_pickle.loads(data) == []


def test_lists_in_themselves_and_sizes_without_end(tmp_path: Path) -> None:
    """Shapes that share lists a million times over are not multiplied out."""
    wide: list[Any] = [1] * 60
    shapes: list[Any] = [wide] * 4000
    shapes.append(shapes)
    dump = foreign_samples.flight_recorder_dump(
        [foreign_samples.flight_recorder_entry(0, 1, input_sizes=shapes)]
    )
    path = tmp_path / "rank_0"
    path.write_bytes(pickle.dumps(dump, 2))
    model = gathered(tmp_path, path)
    assert model.completeness.operations == 1


# ---- compressed files ----
def test_gzip_bombs_end_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_EXPANDED_ANYHOW", 1 << 20)
    bomb = tmp_path / "bomb.log.gz"
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    with bomb.open("wb") as out:
        out.write(
            packer.compress(json.dumps(foreign_samples.inspector_record(0, 0)).encode() + b"\n")
        )
        for _ in range(64):
            out.write(packer.compress(b" " * (1 << 20)))
        out.write(packer.flush())
    with pytest.raises(FormatError, match="expands to over 250 times its size"):
        gathered(tmp_path, bomb)


def test_compressed_files_that_are_cut_off(tmp_path: Path) -> None:
    lines = "".join(
        json.dumps(foreign_samples.inspector_record(0, sn)) + "\n" for sn in range(2000)
    )
    data = gzip.compress(lines.encode())
    log = tmp_path / "a.log.gz"
    log.write_bytes(data[: len(data) // 2])
    completeness = gathered(tmp_path, log).completeness
    assert 100 < completeness.operations < 2000
    assert completeness.lost["files are cut off or damaged"] == 1


def test_lines_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LONGEST_LINE", 1 << 16)
    record = json.dumps(foreign_samples.inspector_record(0, 0))
    log = tmp_path / "a.log"
    log.write_text(f"{record}\n{'x' * (1 << 20)}\n{record}\n{'y' * (1 << 20)}")
    completeness = gathered(tmp_path, log).completeness
    assert completeness.operations == 2
    assert completeness.lost == {"lines cannot be read": 2}


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """A log 20 times as large takes hardly more; measured in processes of their own."""
    line = (json.dumps(foreign_samples.inspector_record(0, 0)) + "\n").encode()
    code = (
        "import sys, resource; from ncclscope.cli import main; main(sys.argv[1:]); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )

    def peak_kb(count: int) -> int:
        log = tmp_path / f"{count}.log"
        log.write_bytes(line * count)
        target = str(tmp_path / f"out{count}")
        command = [sys.executable, "-c", code, "import", str(log), "-o", target]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return int(done.stdout.split()[-1])

    small, large = peak_kb(3_000), peak_kb(60_000)
    assert large - small < 100_000, "kB; kept whole, the lines alone take 180 MB as objects"


# ---- JSON ----
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[1, {"a": [2]}]', [("k", 1), ("k", {"a": [2]})]),
        ('{"x": 12, "k": [1, 2], "y": "z"}', [("x", 12), ("k", 1), ("k", 2), ("y", "z")]),
        (' {"k": [] } ', []),
        ("{}", []),
        ('{"k": 3}', [("k", 3)]),
    ],
)
def test_streamed_json(text: str, expected: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for piece in (1, 3, 1 << 18):
        monkeypatch.setattr("ncclscope.ingest.json_stream._CHUNK", piece)
        assert list(elements(BytesIO(text.encode()), "k")) == expected


@pytest.mark.parametrize("text", ["", "[", "[1", "[1,", '{"k": [1', '{"k"', '{"k": [{"a": 1'])
def test_json_that_is_cut_off(text: str) -> None:
    with pytest.raises(CutError):
        list(elements(BytesIO(text.encode()), "k"))


@pytest.mark.parametrize("text", ["x", "[1 2]", "{1: 2}", "[}", '{"k" 1}', "[" * 100_000])
def test_what_is_no_json(text: str) -> None:
    with pytest.raises((ValueError, CutError)):
        list(elements(BytesIO(text.encode()), "k"))


# ---- numbers ----
@pytest.mark.parametrize(
    "value", [True, "3", None, [], {}, -1, 1 << 63, 10**400, float("nan"), float("inf"), -0.5, 1e30]
)
def test_what_is_no_number(value: Any) -> None:
    assert number(value) == NONE
    assert nanoseconds(value, 1000) == NONE


def test_hashes() -> None:
    assert hash_of("0x9e7a479f95a66c") == 0x9E7A479F95A66C
    assert hash_of("0xd8289d3e6e217d26") == 0xD8289D3E6E217D26 - (1 << 64)
    assert [hash_of(value) for value in ("", "zz", None, 1 << 64, -3, 1.5)] == [0] * 6


# ---- odd records ----
ODD: tuple[Any, ...] = (
    None, True, -1, 1 << 70, 1e308, float("nan"), "", "x" * 10_000, "\x1b[31m<script>", [], {},
    [[[]]], {"a": {}},
)  # fmt: skip


def mutated(record: Any) -> list[Any]:
    """The record with each of its values replaced by odd ones, one at a time."""
    found = []
    if isinstance(record, dict):
        for key, value in record.items():
            found += [{**record, key: odd} for odd in ODD]
            found += [{k: v for k, v in record.items() if k != key}]
            found += [{**record, key: changed} for changed in mutated(value)]
    elif isinstance(record, list) and record:
        found += [[changed, *record[1:]] for changed in mutated(record[0])]
    return found


def dumped(value: Any) -> str:
    return json.dumps(value, default=str)


def opened_and_reported(model: Model) -> None:
    """An import of anything can be shown."""
    from ncclscope.analysis import summary_from_operations
    from ncclscope.analysis.selection import Selection, parse_by
    from ncclscope.report.json_csv import as_json
    from ncclscope.report.terminal import Style, terminal_lines

    summary = summary_from_operations.summarize(model, Selection(), parse_by(["+communicator"]))
    lines = list(terminal_lines(summary, summary.groups, Style()))
    assert not any("\x1b" in line for line in lines)
    json.dumps(as_json(summary, summary.groups), allow_nan=False)


def test_odd_inspector_records(tmp_path: Path) -> None:
    trace = {"coll_start_ts": 1, "kernel_events": [{"kernel_start_ts": 5}]}
    base = foreign_samples.inspector_record(
        1, 1, event_trace_ts=trace, coll_timing_source="kernel_cpu"
    )
    records = [*mutated(base), *mutated(foreign_samples.inspector_p2p(0, 1)), *ODD]
    log = tmp_path / "a.log"
    log.write_text(
        "\n".join(dumped(record) for record in [foreign_samples.inspector_record(0, 0), *records])
    )
    model = gathered(tmp_path, log)
    assert model.completeness.operations + model.completeness.lost["lines cannot be read"] == (
        len(records) + 1
    )
    opened_and_reported(model)


def test_odd_comma_records(tmp_path: Path) -> None:
    records = mutated(foreign_samples.comma_record(1))
    file = tmp_path / "latency.json"
    file.write_text(
        "\n".join(dumped(record) for record in [foreign_samples.comma_record(0), *records])
    )
    opened_and_reported(gathered(tmp_path, file))


def test_odd_flight_recorder_entries(tmp_path: Path) -> None:
    entries = [
        foreign_samples.flight_recorder_entry(0, 1),
        *mutated(foreign_samples.flight_recorder_entry(1, 2)),
    ]
    path = tmp_path / "dump_0.json"
    path.write_text(dumped(foreign_samples.flight_recorder_dump(entries)))
    opened_and_reported(gathered(tmp_path, path))
    for document in mutated(foreign_samples.flight_recorder_dump([])):
        path.write_text(dumped(document))
        try:
            for _ in FORMATS["flight-recorder"].read(path, ImportReport()):
                pass
        except FormatError as error:
            assert "no Flight Recorder dump" in str(error)


def test_groups_without_ranks(tmp_path: Path) -> None:
    """Of a process group whose ranks nobody tells, nothing is inferred."""
    path = tmp_path / "dump_0.json"
    other = foreign_samples.flight_recorder_entry(1, 1, process_group=["7", "?"])
    path.write_text(
        dumped(
            foreign_samples.flight_recorder_dump(
                [foreign_samples.flight_recorder_entry(0, 1), other]
            )
        )
    )
    model = gathered(tmp_path, path)
    assert model.communicator_names == ["default_pg", "?"]
    opened_and_reported(model)


def test_odd_nccl_tests_results(tmp_path: Path) -> None:
    small = foreign_samples.nccl_tests_result()
    small["results"] = small["results"][:1]
    small["results"][0]["actual_iterations"] = 1
    for number_, document in enumerate(mutated(small)):
        path = tmp_path / f"{number_}.json"
        path.write_text(dumped(document))
        try:
            for _ in FORMATS["nccl-tests"].read(path, ImportReport()):
                pass
        except FormatError as error:
            assert "no results" in str(error)


def test_odd_chrome_events(tmp_path: Path) -> None:
    events = [
        *foreign_samples.torch_trace(0)["traceEvents"],
        *foreign_samples.ncclsee_trace(0)["traceEvents"],
    ]
    odd = [changed for event in events for changed in mutated(event)]
    path = tmp_path / "trace.json"
    path.write_text(
        dumped({**foreign_samples.torch_trace(0), "traceEvents": [*events, *odd, *ODD]})
    )
    opened_and_reported(gathered(tmp_path, path))
    for number_, document in enumerate(mutated(foreign_samples.torch_trace(0))[:200]):
        path = tmp_path / f"{number_}.json"
        path.write_text(dumped(document))
        for _ in FORMATS["chrome"].read(path, ImportReport()):
            pass


@pytest.mark.parametrize(
    "text",
    [
        "CollectiveType,Calls\nAllReduce,5\n",
        foreign_samples.NCCLSEE + "AllReduce,x,0,1,-3,5,1.0\nAllReduce,x,0,1,1e3,5,1.0\n,,,,,,\n",
        foreign_samples.NCCLSEE + "\0\0\0,,,1,2,3\n" + "x" * 200_000 + ",1,2\n",
        foreign_samples.NCCLSEE
        + "AllReduce,x,0,1,1,99999999999999999999,nan\nAllReduce,x,0,1,1,5,inf\n",
    ],
)
def test_odd_ncclsee_rows(tmp_path: Path, text: str) -> None:
    path = tmp_path / "1.csv"
    path.write_text(text)
    opened_and_reported(gathered(tmp_path, path))


def test_counts_without_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, head = tmp_path / "1.csv", foreign_samples.NCCLSEE.splitlines()[0]
    path.write_text(f"{head}\nAllReduce,x,0,1,999999999999,5,1.0\n")
    monkeypatch.setattr(ncclsee, "_same", None)  # none is made
    with pytest.raises(FormatError, match="counts more than 2,097,152 operations"):
        gathered(tmp_path, path)


def test_counts_that_add_up_without_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "1.csv"
    path.write_text(foreign_samples.NCCLSEE + "AllReduce,x,0,1,600,5,1.0\n" * 2)
    with pytest.MonkeyPatch.context() as patch:
        small = {**FORMATS, "ncclsee": replaced(FORMATS["ncclsee"], most_operations=1000)}
        patch.setattr("ncclscope.ingest.formats.FORMATS", small)
        with pytest.raises(FormatError, match="counts more than 1,000 operations"):
            gathered(tmp_path, path)


def replaced(form: Any, **changes: Any) -> Any:
    from dataclasses import replace

    return replace(form, **changes)


# ---- SQLite ----
def odd_export(path: Path, script: str) -> Path:
    with sqlite3.connect(path) as database:
        database.executescript(script)
    database.close()
    return path


@pytest.mark.parametrize(
    ("script", "cause"),
    [
        ("create table other (x)", "neither NVTX ranges nor kernels"),
        (
            "create view NVTX_EVENTS as with recursive r(x) as (select 1 union all select x + 1 "
            "from r) select x as start, x as end, x as globalTid, 'ncclAllReduce' as text from r",
            "neither NVTX ranges nor kernels",
        ),
        ("create virtual table NVTX_EVENTS using fts5(start)", "neither NVTX ranges nor kernels"),
    ],
)
def test_sqlite_with_other_schemas(tmp_path: Path, script: str, cause: str) -> None:
    with pytest.raises(FormatError, match=cause):
        gathered(tmp_path, odd_export(tmp_path / "a.sqlite", script))


@pytest.mark.parametrize(
    "script",
    [
        "create table NVTX_EVENTS (start)",
        "create table NVTX_EVENTS (start, end, globalTid, text); insert into NVTX_EVENTS values "
        "('a', 'b', 'c', 'ncclAllReduce'), (-5, 3, 4, 'ncclAllReduce'), (1, null, 16777217, x'00'),"
        "(1, null, 16777217, 'ncclAllReduce'), (9e99, 1, 1, 'ncclSend')",
        "create table StringIds (id, value); create table CUPTI_ACTIVITY_KIND_KERNEL (start, end, "
        "shortName); insert into StringIds values (1, 'ncclDevKernel_SendRecv'), (1, 'ncclX'); "
        "insert into CUPTI_ACTIVITY_KIND_KERNEL values (5, 2, 1), ('x', 'y', 1), (1, 2, 1)",
        "create table NVTX_EVENTS (start, end, globalTid, textId, binaryData); create table "
        "StringIds (id, value); insert into StringIds values (1, 'ncclAllReduce'); insert into "
        "NVTX_EVENTS values (1, 2, 3, 1, 'zz'), (1, 2, 3, 1, x'00'), (1, 2, 3, 1, zeroblob(40)); "
        "create table NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId, schemaId, type, name, offset); "
        "insert into NVTX_PAYLOAD_SCHEMA_ENTRIES values (0, 0, 22, 'Message size [bytes]', 99999), "
        "(0, 0, 22, 'Root', 'x'), (0, 0, 'y', 'Root', 0), (0, 0, 18, null, 1)",
        "create table NVTX_EVENTS (start, end, globalTid, text); create table "
        "TARGET_INFO_SESSION_START_TIME (utcEpochNs); insert into TARGET_INFO_SESSION_START_TIME "
        "values ('now'); create table TARGET_INFO_SYSTEM_ENV (name, value); insert into "
        "TARGET_INFO_SYSTEM_ENV values ('Hostname', 7)",
    ],
)
def test_sqlite_with_odd_values(tmp_path: Path, script: str) -> None:
    opened_and_reported(gathered(tmp_path, odd_export(tmp_path / "a.sqlite", script)))


def test_damaged_sqlite(tmp_path: Path) -> None:
    whole = foreign_samples.nsys_export(tmp_path / "whole.sqlite").read_bytes()
    for place in range(100, len(whole), len(whole) // 60):
        broken = tmp_path / f"{place}.sqlite"
        broken.write_bytes(whole[:place] + CHANCE.randbytes(64) + whole[place + 64 :])
        folder = tmp_path / f"gathered{place}"
        folder.mkdir()
        try:
            import_files(plan_import([broken], None), folder)
        except FormatError as error:
            assert "cannot read" in str(error)
    cut = tmp_path / "cut.sqlite"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FormatError):
        gathered(tmp_path, cut)


def test_a_files_triggers_and_journals_are_left_alone(tmp_path: Path) -> None:
    export = foreign_samples.nsys_export(tmp_path / "a.sqlite")
    before = export.read_bytes()
    gathered(tmp_path, export)
    assert export.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.sqlite", "gathered"]


# ---- logs ----
@pytest.mark.parametrize(
    ("line", "host", "text"),
    [
        (b"a:1:2 [0] NCCL INFO Using network IB", "a", "Using network IB"),
        (b"[1,0]<stdout>:a-b.c:1:2 [7] NCCL INFO x", "a-b.c", "x"),
        (b"[2026-05-05 06:16:47] a:1:2 [3] plugin/net.cc:3 NCCL WARN bad", "a", "bad"),
        (b"3: a:1:2 [0] 5.123 initTransports:12 NCCL TRACE y", "a", "y"),
    ],
)
def test_lines_of_nccl(line: bytes, host: str, text: str) -> None:
    found = parse_line(line)
    assert found is not None
    assert (found.host, found.text) == (host, text)


@pytest.mark.parametrize("line", [b"", b"NCCL INFO", b"a:1 NCCL INFO x", b"\xff\xfe\0NCCL"])
def test_lines_of_others(line: bytes) -> None:
    assert parse_line(line) is None


def test_hostile_logs(tmp_path: Path) -> None:
    """Numbers without end, lines that contradict each other, bytes of any kind."""
    log = tmp_path / "nccl.log"
    odd = [
        b"a:1:2 [0] NCCL INFO comm 0x1 rank 99999999999 nranks 99999999999 - Init START",
        b"a:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 2[0] via NET/IB/999999999999",
        b"a:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 2[0] via " + b"/" * 5000,
        b"a:1:2 [0] NCCL INFO Channel 00/00 : " + b"1 " * 100_000,
        b"a:1:2 [0] NCCL INFO Trees " + b"[0] -1/-1/-1->0->0 " * 1000,
        b"a:1:2 [0] NCCL INFO Ring 00 : 0 -> 0 -> 0",
        b"a:1:2 [0] NCCL INFO NET/IB : Using [0]" + b"\xff" * 100 + b":1/IB",
        b"a:1:2 [0] NCCL INFO 99999999999999999999 Bytes -> Algo 99 proto 99",
        b"a:1:2 [0] NCCL INFO AllReduce: opCount ff sendbuff 0x1 recvbuff 0x2 count "
        b"99999999999999999999999999 datatype 999 op 0 root 99999999999 comm 0x1 [nranks=99999999]"
        b" stream 0xffffffffffffffffffffffff",
        b"a:1:2 [0] x NCCL WARN \x1b[31m<script>alert(1)</script>",
    ]
    log.write_bytes(
        foreign_samples.NCCL_LOG.encode() + b"\n".join(odd) + b"\n" + CHANCE.randbytes(1 << 16)
    )
    opened_and_reported(gathered(tmp_path, log))
    topology = topology_of_logs([log])
    assert json.loads(json.dumps(topology.as_json()))["lines"] == topology.lines
    assert any("<script>" in one.text for one in topology.warnings)


def test_lines_that_make_searching_slow(tmp_path: Path) -> None:
    """A careless pattern needs an hour for these, and the process does not get that."""
    log = tmp_path / "nccl.log"
    log.write_bytes(b"\n".join([b"a" * 60_000 + b" NCCL", b"1:" * 30_000 + b" NCCL INFO "] * 100))
    program = (
        "import sys; from pathlib import Path\n"
        f"from {topology_of_logs.__module__} import topology_of_logs\n"
        "print(bool(topology_of_logs([Path(sys.argv[1])])))"
    )
    command = [sys.executable, "-c", program, str(log)]
    assert subprocess.check_output(command, text=True, timeout=300) == "False\n"


def test_warnings_without_end_are_bounded(tmp_path: Path) -> None:
    log = tmp_path / "nccl.log"
    with log.open("w") as out:
        out.writelines(f"a:1:2 [0] net.cc:1 NCCL WARN failure {n}\n" for n in range(10_000))
        out.writelines(f"a:1:2 [0] net.cc:1 NCCL WARN failure {0}\n" for _ in range(10))
    topology = topology_of_logs([log])
    assert len(topology.warnings) == 4096
    assert topology.warnings[0].count == 11
    assert topology.notes == ("5,904 lines of NCCL's log left out: too many of a kind",)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"releases": 3}', "[" * 100_000])
def test_damaged_topologies(tmp_path: Path, text: str) -> None:
    (tmp_path / "topology.json").write_text(text)
    with pytest.raises(FormatError, match="it is damaged"):
        topology_of(tmp_path)


def test_odd_topologies(tmp_path: Path) -> None:
    """What somebody else wrote is shown, or refused in a sentence."""
    from ncclscope.report.topology import topology_tables, warning_lines

    log = tmp_path / "nccl.log"
    log.write_text(foreign_samples.NCCL_LOG)
    model = gathered(tmp_path, log)
    whole = json.loads(json.dumps(topology_of_logs([log]).as_json()))
    for name in ("warnings", "links", "nics", "choices", "communicators"):
        whole[name] = whole[name][:1]
    refused = 0
    for changed in mutated(whole):
        (tmp_path / "topology.json").write_text(dumped(changed))
        try:
            topology = topology_of(tmp_path)
            topology_tables(topology, model, 12)
            warning_lines(topology)
        except FormatError:
            refused += 1
    assert refused > 100


def test_links_in_a_capture_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text(foreign_samples.NCCL_LOG)
    capture = tmp_path / "capture"
    capture.mkdir()
    (capture / "debug.a.1").symlink_to(outside)
    assert not topology_of(capture)


# ---- files at large ----
def test_formats_by_their_beginning(tmp_path: Path) -> None:
    nothing = [
        b"",
        b"hello",
        b"{}",
        b"[]",
        b"\0" * 100,
        b"\x1f\x8b",
        b"\x80",
        CHANCE.randbytes(500),
    ]
    for place, data in enumerate(nothing):
        path = tmp_path / str(place)
        path.write_bytes(data)
        assert format_of(path) is None
    with pytest.raises(UsageError, match="none of a known format"):
        plan_import([tmp_path], None)
    with pytest.raises(UsageError, match="of no known format"):
        plan_import([tmp_path / "1"], None)


def test_one_bad_file_does_not_keep_the_others_out(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(foreign_samples.hung_dump(rank), 2))
    (tmp_path / "rank_2").write_bytes(b"\x80\x02cos\nsystem\n(S'true'\ntR.")
    completeness = gathered(tmp_path, *sorted(tmp_path.glob("rank_*"))).completeness
    assert completeness.processes_found == 2
    assert completeness.processes_expected == 3
    assert completeness.lost == {"files cannot be read": 1}
    assert any("rank_2: it names a class" in note for note in completeness.notes)


def test_pickles_nested_deeply() -> None:
    """Nothing of a file is recursed into."""
    deep = b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."
    value = safe_pickle.loads(deep)
    assert isinstance(value, list)
    while value:  # taken apart by hand: deleting it at once recurses
        value = value.pop()


def test_payloads_that_lie_about_their_size() -> None:
    from ncclscope.ingest.nsys import _payload

    schemas = {(1, 8): [("Message size [bytes]", "<Q", 8)]}
    whole = foreign_samples.nsys_payload(8, struct.pack("<QQ", 1, 77))
    assert _payload(whole, schemas) == {"Message size [bytes]": 77}
    assert _payload(whole[:-1], schemas) == {}
    assert _payload(whole[:20], schemas) == {}
    assert _payload(whole.hex(), schemas) == {"Message size [bytes]": 77}
    assert _payload(3.5, schemas) == {}


def test_of_a_long_log_the_ends_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_HEAD_OF_LOG", 1 << 20)
    monkeypatch.setattr(files, "_TAIL_OF_LOG", 1 << 20)
    filler = "a:1:2 [0] NCCL INFO nothing of interest\n" * 100_000
    last = "a:1:2 [0] net.cc:1 NCCL WARN the end\n"
    (tmp_path / "debug.a.1").write_text(foreign_samples.NCCL_LOG + filler + last)
    topology = topology_of(tmp_path)
    assert len(topology.links) == 5
    assert "the end" in [one.text for one in topology.warnings]
    assert topology.notes == ("1 MB in the middle of a log not read",)


def test_rings_of_many_ranks(tmp_path: Path) -> None:
    order = tuple(range(4000))
    log = tmp_path / "nccl.log"
    log.write_text(
        "a:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 4000 cudaDev 0 nvmlDev 0 "
        "busId 1 commId 0x2 - Init START\na:1:2 [0] NCCL INFO Channel 00/01 : "
        + "".join(f"{rank:4d} " for rank in order)
        + "\n"
    )
    assert topology_of_logs([log]).communicators[0].rings == {0: order}


def test_rows_are_held_for_a_while_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three processes in turn, in pieces of any size: the same model, its rows by process."""
    events = [foreign_samples.ncclsee_trace(rank)["traceEvents"] for rank in range(3)]
    mixed = [event for of_all in zip(*events, strict=True) for event in of_all]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": mixed}))
    found = []
    for number_, (rows, held) in enumerate([(1 << 15, 1 << 17), (2, 100), (100, 4)]):
        monkeypatch.setattr("ncclscope.ingest.model_builder._ROWS_OF_PROCESS", rows)
        monkeypatch.setattr("ncclscope.ingest.model_builder._ROWS_HELD", held)
        folder = tmp_path / f"gathered{number_}"
        folder.mkdir()
        model = import_files(plan_import([path], None), folder)
        found.append({name: values.tolist() for name, values in model.tables["operations"].items()})
        assert not list(folder.glob(".model-*"))
    assert found[0]["process"] == sorted(found[0]["process"])
    assert found[0] == found[1] == found[2]


def test_large_values_beside_the_events(tmp_path: Path) -> None:
    """Chrome's own traces carry whole system logs as one text."""
    document = {"systemTraceEvents": "x" * (20 << 20), **foreign_samples.ncclsee_trace(0)}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    assert len(list(FORMATS["chrome"].read(path, ImportReport()))) == 5
    path.write_text(json.dumps([{"ph": "X", "name": "x" * (40 << 20)}]))
    with pytest.raises(FormatError, match="over 16 MB"):
        list(FORMATS["chrome"].read(path, ImportReport()))


def test_a_process_id_that_cannot_be_is_not_known() -> None:
    line = parse_line(b"a:4294967296:22 [1] NCCL INFO comm 0x10 rank 0 nranks 2 - Init COMPLETE")
    assert line is not None
    assert (line.pid, line.thread, line.device) == (NONE, 22, 1)
