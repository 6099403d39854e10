"""From a capture to operations and to a report: speed, memory, and bytes as Parquet.

The captures are simulated (tests/writer): only their amount matters here.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.results import ROOT, publish, table
from tests.writer import SyntheticSpec, synthetic

# name, ranks, operations of each
CAPTURES = (("10 M operations", 64, 156_250), ("1024 processes", 1024, 20_000))
DECODE_BAR, AGAIN_BAR = 1.5e6, 5e6  # operations a second and core
COLD_BAR_S, WARM_BAR_S, MEMORY_BAR_GB = 20, 3, 2
MANY_MEMORY_BAR_GB = 8
PARQUET_BAR_BYTES = 30

_MEASURE = """
import json, resource, sys, time
from pathlib import Path
what, capture = sys.argv[1], Path(sys.argv[2])
start = time.perf_counter()
cpu = time.process_time
if what == "decode":
    import duckdb
    from ncclscope.capture.reader import process_folders
    from ncclscope.model.parts import decode_part
    from ncclscope.model.workers import keep_memory
    keep_memory()
    rows, times = 0, []
    connection = duckdb.connect()
    connection.execute("set threads = 1")
    for folder in process_folders(capture)[:9]:
        before = cpu()
        part, columns = decode_part(folder)
        connection.register("operations", columns)
        connection.execute("select communicator, function, size_bytes, datatype, count(*), "
            "sum(duration_ns) from operations group by 1, 2, 3, 4").fetchall()
        times.append((cpu() - before) / part.rows)
    begin = time.perf_counter()
    found = {"rows": 1, "cpu_s": sorted(times)[len(times) // 2]}
elif what == "again":
    from ncclscope.analysis.query import connect
    from ncclscope.analysis.selection import Selection
    from ncclscope.model.build import open_model
    begin, before = time.perf_counter(), cpu()
    model = open_model(capture)
    text = ("select communicator, function, size_bytes, datatype, count(*), sum(duration_ns) "
            "from operations group by 1, 2, 3, 4")
    connect(model, Selection()).execute(text).fetchall()
    found = {"rows": len(model.tables["operations"]["event"]), "cpu_s": cpu() - before}
else:
    from ncclscope.cli import main
    begin = time.perf_counter()
    main(["report", str(capture), "--json"] if what == "report" else
         ["export", str(capture), "--to", "parquet", "-o", sys.argv[3]])
    found = {}
found["wall_s"] = time.perf_counter() - begin
found["peak_gb"] = max(
    resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss,
) / 1e6
print(json.dumps(found), file=sys.stderr)
"""


def measure(what: str, capture: Path, *more: str) -> dict[str, float]:
    """One measurement in a process of its own."""
    command = [sys.executable, "-c", _MEASURE, what, str(capture), *more]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(ran.stderr.strip().splitlines()[-1]))


def verdict(holds: bool) -> str:
    """For a table."""
    return "holds" if holds else "**does not hold**"


def speed_rows(capture: Path) -> list[list[object]]:
    """Decoding and grouping, per core."""
    decoded, again = measure("decode", capture), measure("again", capture)
    rows: list[list[object]] = []
    for what, found, bar in (
        ("decode to operations", decoded, DECODE_BAR),
        ("group the saved model", again, AGAIN_BAR),
    ):
        rate = found["rows"] / found["cpu_s"]
        rows.append([what, f"{rate / 1e6:.2f} M operations/s and core", f"≥ {bar / 1e6} M"])
        rows[-1].append(verdict(rate >= bar))
    return rows


def report_rows(capture: Path, name: str, memory_bar_gb: float) -> list[list[object]]:
    """A report from the capture alone, and one from the saved model."""
    shutil.rmtree(capture / "model", ignore_errors=True)
    cold, warm = measure("report", capture), measure("report", capture)
    peak = max(cold["peak_gb"], warm["peak_gb"])
    cold_bar, warm_bar = (COLD_BAR_S, WARM_BAR_S) if name == CAPTURES[0][0] else (None, None)
    rows: list[list[object]] = []
    for what, value, bar, unit in (
        ("report, cold", cold["wall_s"], cold_bar, "s"),
        ("report, from the saved model", warm["wall_s"], warm_bar, "s"),
        ("largest process of it, mapped files included", peak, memory_bar_gb, "GB"),
    ):
        held = "" if bar is None else verdict(value <= bar)
        limit = "" if bar is None else f"≤ {bar} {unit}"
        rows.append([f"{name}: {what}", f"{value:.1f} {unit}", limit, held])
    return rows


def parquet_row(capture: Path, directory: Path, operations: int) -> list[object]:
    """Bytes an operation as exported."""
    target = directory / "parquet"
    found = measure("export", capture, str(target))
    size = sum(path.stat().st_size for path in (target / "operations").rglob("*.parquet"))
    each = size / operations
    text = f"{each:.1f} bytes an operation, {operations / found['wall_s'] / 1e6:.2f} M operations/s"
    return ["export as Parquet", text, f"≤ {PARQUET_BAR_BYTES}", verdict(each <= PARQUET_BAR_BYTES)]


def main() -> None:
    """Makes the captures, measures, and publishes."""
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory(dir=ROOT / ".bench") as directory:
        for name, ranks, operations in CAPTURES:
            capture = Path(directory) / "capture"
            synthetic(capture, SyntheticSpec(processes=ranks, operations=operations))
            first = name == CAPTURES[0][0]
            rows += report_rows(capture, name, MEMORY_BAR_GB if first else MANY_MEMORY_BAR_GB)
            if first:
                rows[:0] = speed_rows(capture)
                rows.append(parquet_row(capture, Path(directory), ranks * operations))
            shutil.rmtree(capture)
            time.sleep(1)
    note = (
        "Simulated captures in trace mode, 2 channels: 64 ranks of 156,250 operations each, and "
        f"1024 of 20,000. {len(os.sched_getaffinity(0))} cores; decoding uses all of them."
    )
    publish("model-speed", f"{table(['what', 'measured', 'bar', ''], rows)}\n\n{note}")
