"""A program that plays `nsys`: `python -m tests.support.known_nsys profile OPTIONS COMMAND…`.

It records the collectives of a command by the known plugin (KNOWN_NSYS_PLUGIN), and then writes
them as Nsight Systems' SQLite export has them: NVTX ranges with payloads, launches, kernels. It
outlives a command that is killed, and takes KNOWN_NSYS_EXPORT_S seconds for its export. Options
that it does not know end it, as they end nsys.
"""

import json
import os
import re
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support.foreign_samples import nsys_payload, nsys_tables

EXPECTED = ("--trace=cuda,nvtx", "--export=sqlite", "--force-overwrite=true")
ENTRIES = (
    (7, 18, "NCCL communicator ID", None), (7, 5, "No. of ranks", 8), (7, 5, "Rank", 12),
    (8, 18, "NCCL communicator ID", None), (8, 22, "Message size [bytes]", 8),
)  # fmt: skip
HOST_NS = 1000  # that a call takes on the host; its kernel is launched in the middle


def install(folder: Path) -> Path:
    """A command `nsys` in a new folder, for PATH."""
    folder.mkdir()
    command = folder / "nsys"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m {__name__} "$@"\n')
    command.chmod(0o755)
    return folder


def output_path(options: list[str]) -> Path:
    """Where the export goes: %q{NAME} stands for a variable."""
    *others, output = options
    name = output.removeprefix("--output=")
    if tuple(others) != EXPECTED or name == output:
        sys.exit(f"nsys: unrecognised options {options}")
    return Path(re.sub(r"%q\{(\w+)\}", lambda match: os.environ[match[1]], name) + ".sqlite")


def run_recorded(command: list[str]) -> tuple[int, list[dict[str, Any]]]:
    """The command's exit code, and the known plugin's lines about it."""
    with tempfile.TemporaryDirectory() as folder:
        plugin = {"NCCL_PROFILER_PLUGIN": os.environ["KNOWN_NSYS_PLUGIN"]}
        environment = {**os.environ, **plugin, "NCCL_INSPECTOR_DUMP_DIR": folder}
        code = subprocess.run(command, env=environment, check=False).returncode
        lines = [line for path in Path(folder).iterdir() for line in path.read_text().splitlines()]
    return 128 - code if code < 0 else code, list(map(json.loads, lines))


def ranges_of(records: list[dict[str, Any]]) -> Iterator[tuple[int, str, bytes, int]]:
    """Start, name and payload of each NVTX range, and the length of the kernel in it; 0: none."""
    header = records[0]["header"]
    communicator, ranks = int(header["id"], 16), header["n_ranks"]
    init = nsys_payload(7, struct.pack("<Qii", communicator, ranks, header["rank"]))
    yield 0, "ncclCommInitRank", init, 0
    for number, record in enumerate(records, 1):
        call: Mapping[str, Any] = record["coll_perf"]
        # Of an AllGather one rank's bytes: the lines have them so, and NCCL's payloads, too.
        payload = nsys_payload(8, struct.pack("<QQ", communicator, call["coll_msg_size_bytes"]))
        start_ns = 10_000_000 * number
        yield start_ns, f"nccl{call['coll']}", payload, round(call["coll_exec_time_us"] * 1000)


def write_export(path: Path, records: list[dict[str, Any]]) -> None:
    """The tables that hold these records."""
    process = records[0]["metadata"]["pid"] << 24
    with sqlite3.connect(path) as database:
        nsys_tables(database)
        database.execute("insert into StringIds values (1, 'ncclDevKernel_RING_LL')")
        database.executemany(
            "insert into NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId, schemaId, idx, type, name, offset) "
            "values (1, ?, 0, ?, ?, ?)",
            ENTRIES,
        )
        for number, (start_ns, name, payload, kernel_ns) in enumerate(ranges_of(records)):
            database.execute(
                "insert into NVTX_EVENTS (start, end, text, binaryData, globalTid, domainId, "
                "eventType) values (?, ?, ?, ?, ?, 1, 59)",
                (start_ns, start_ns + HOST_NS, name, payload, process | 1),
            )
            if not kernel_ns:
                continue
            launch_ns = start_ns + HOST_NS // 2
            database.execute(
                "insert into CUPTI_ACTIVITY_KIND_RUNTIME values (?, ?, 0, ?, ?, 1, 0, null)",
                (launch_ns, launch_ns + 1, process | 1, number),
            )
            database.execute(
                "insert into CUPTI_ACTIVITY_KIND_KERNEL values (?, ?, 0, 1, 13, ?, ?, 1, 1, null)",
                (launch_ns + 1, launch_ns + 1 + kernel_ns, number, process),
            )
    database.close()


def main(words: list[str]) -> int:
    """Runs the command, and writes the export."""
    verb, *options = words[: len(EXPECTED) + 2]
    if verb != "profile":
        sys.exit(f"nsys: there is no {verb}")
    path = output_path(options)
    code, records = run_recorded(words[len(EXPECTED) + 2 :])
    time.sleep(float(os.environ.get("KNOWN_NSYS_EXPORT_S", "0")))
    path.with_suffix(".nsys-rep").write_bytes(b"a report that only nsys reads")
    if records:
        write_export(path, records)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
