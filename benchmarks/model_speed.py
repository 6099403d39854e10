"""From a capture to operations and to a report: speed, memory, and bytes as Parquet.

The captures are simulated (tests/writer): only their amount matters here.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.results import ROOT, publish, table
from tests.support.writer import SyntheticSpec, synthetic

# name, ranks, operations of each
CAPTURES = (
    ("10 M operations", 64, 156_250),
    ("1024 processes", 1024, 20_000),
    ("one process", 1, 20_000_000),
)
DECODE_BAR, AGAIN_BAR = 1.5e6, 5e6  # operations a second and core
COLD_BAR_S, WARM_BAR_S, MEMORY_BAR_GB = 20, 3, 2
MANY_MEMORY_BAR_GB = 8
ONE_MEMORY_BAR_GB = 1.5
MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")  # of control groups, version 1; needs root
SPEED_RUNS = 8  # the median counts: what else the machine does slows some of them by a third
PARQUET_BAR_BYTES, PARQUET_BAR = 30, 2e6  # an operation; operations a second

_MEASURE = """
import json, os, resource, sys, threading, time
from pathlib import Path
what, capture = sys.argv[1], Path(sys.argv[2])
cpu = time.process_time
private = [0]


def watch():  # the most private memory of this process, or of one of its workers
    me, children = os.getpid(), Path(f"/proc/self/task/{os.getpid()}/children")
    while True:
        for process in (me, *map(int, children.read_text().split())):
            try:
                lines = Path(f"/proc/{process}/status").read_text().splitlines()
            except OSError:
                continue
            kb = [int(line.split()[1]) for line in lines if line.startswith("RssAnon")]
            private[0] = max(private[0], *kb, 0)
        time.sleep(0.02)


if what == "report":
    threading.Thread(target=watch, daemon=True).start()
if what == "decode":
    import duckdb
    from ncclscope.capture.reader import process_folders
    from ncclscope.model.process.decoded_process import decode_process
    from ncclscope.model.decode_pool import keep_memory
    keep_memory()
    rows, times = 0, []
    connection = duckdb.connect()
    connection.execute("set threads = 1")
    for folder in process_folders(capture)[:9]:
        before = cpu()
        part, columns = decode_process(folder)
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
    from ncclscope.export import parquet
    if what == "export by DuckDB":
        parquet.has_pyarrow = lambda: False
    begin = time.perf_counter()
    main(["report", str(capture), "--json"] if what == "report" else
         ["export", str(capture), "--to", "parquet", "-o", sys.argv[3]])
    found = {}
found["wall_s"] = time.perf_counter() - begin
workers = resource.getrusage(resource.RUSAGE_CHILDREN)
found["workers_cpu_s"] = workers.ru_utime + workers.ru_stime
found["own_cpu_s"] = cpu()
found["private_gb"] = private[0] / 1e6
found["peak_gb"] = max(
    resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss,
) / 1e6
print(json.dumps(found), file=sys.stderr)
"""


@contextmanager
def memory_group(limit_gb: float) -> Iterator[Path | None]:
    """A control group whose processes, workers and page cache included, get no more memory than
    that; None where there can be none.
    """
    group = MEMORY_GROUPS / f"ncclscope-bench-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(int(limit_gb * 1e9)))
    except OSError:
        yield None
        return
    try:
        yield group
    finally:
        group.rmdir()


def measure(what: str, capture: Path, *more: str, group: Path | None = None) -> dict[str, float]:
    """One measurement in a process of its own."""
    command = [sys.executable, "-c", _MEASURE, what, str(capture), *more]
    # Byte code is kept, as it is where the package is installed.
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    kept["PYTHONPYCACHEPREFIX"] = str(ROOT / ".bench" / "pycache")
    if group:
        join = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        command = ["sh", "-c", join, "sh", *command]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=kept)
    return dict(json.loads(ran.stderr.strip().splitlines()[-1]))


def verdict(holds: bool) -> str:
    """For a table."""
    return "holds" if holds else "**does not hold**"


def speed_rows(capture: Path) -> list[list[object]]:
    """Decoding and grouping, per core."""
    rows: list[list[object]] = []
    for what, title, bar in (
        ("decode", "decode to operations", DECODE_BAR),
        ("again", "group the saved model", AGAIN_BAR),
    ):
        found = [measure(what, capture) for _ in range(SPEED_RUNS)]
        rates = sorted(one["rows"] / one["cpu_s"] / 1e6 for one in found)
        middle = statistics.median(rates)
        text = f"{middle:.2f} M operations/s and core ({rates[0]:.2f} to {rates[-1]:.2f})"
        rows.append([title, text, f"≥ {bar / 1e6} M", verdict(middle >= bar / 1e6)])
    return rows


def quiet_s(found: dict[str, float]) -> float:
    """What it takes with nothing else running: CPU time, that of the workers side by side."""
    return found["own_cpu_s"] + found["workers_cpu_s"] / len(os.sched_getaffinity(0))


def report_rows(capture: Path, name: str, memory_bar_gb: float) -> list[list[object]]:
    """A report from the capture alone, and one from the saved model."""
    shutil.rmtree(capture / "model", ignore_errors=True)
    cold, warm = measure("report", capture), measure("report", capture)
    peak = max(cold["peak_gb"], warm["peak_gb"])
    private = max(cold["private_gb"], warm["private_gb"])
    cold_bar, warm_bar = (COLD_BAR_S, WARM_BAR_S) if name == CAPTURES[0][0] else (None, None)
    rows: list[list[object]] = []
    for what, found, bar in (
        ("report, cold", cold, cold_bar),
        ("report, from the saved model", warm, warm_bar),
    ):
        text = f"{found['wall_s']:.1f} s, by CPU time {quiet_s(found):.1f} s"
        held = "" if bar is None else verdict(found["wall_s"] <= bar)
        if bar is not None and found["wall_s"] > bar >= quiet_s(found):
            held = "by CPU time only: the machine was busy"
        rows.append([f"{name}: {what}", text, "" if bar is None else f"≤ {bar} s", held])
    text = f"{peak:.1f} GB, {private:.1f} GB of it private"
    rows.append([f"{name}: largest process, mapped files included", text, "", ""])
    return [*rows, limited_row(capture, name, memory_bar_gb, cold_bar, warm_bar)]


def limited_row(
    capture: Path, name: str, limit_gb: float, cold_bar: float | None, warm_bar: float | None
) -> list[object]:
    """The same with no more memory than the bar, for all processes and the page cache together."""
    title = f"{name}: both reports with {limit_gb} GB of memory"
    bars = "to their end" if cold_bar is None else f"≤ {cold_bar} s, ≤ {warm_bar} s"
    with memory_group(limit_gb) as group:
        if group is None:
            return [title, "not tried: no control group can be made here", bars, ""]
        shutil.rmtree(capture / "model", ignore_errors=True)
        try:
            found = [measure("report", capture, group=group)["wall_s"] for _ in range(2)]
        except subprocess.CalledProcessError as error:
            return [title, f"ended with {error.returncode}", bars, verdict(False)]
    quick = cold_bar is None or warm_bar is None or (found[0] <= cold_bar and found[1] <= warm_bar)
    return [title, f"{found[0]:.1f} s, {found[1]:.1f} s", bars, verdict(quick)]


def parquet_rows(capture: Path, directory: Path, operations: int) -> list[list[object]]:
    """Bytes an operation as exported, and how quickly; without pyarrow the bytes alone count."""
    rows: list[list[object]] = []
    for what, name in (
        ("export", "export as Parquet"),
        ("export by DuckDB", "export as Parquet without pyarrow"),
    ):
        target = directory / "parquet"
        found = measure(what, capture, str(target))
        size = sum(path.stat().st_size for path in (target / "operations").rglob("*.parquet"))
        each, rate = size / operations, operations / found["wall_s"]
        quiet = operations * len(os.sched_getaffinity(0)) / found["own_cpu_s"]
        text = f"{each:.1f} bytes an operation, {rate / 1e6:.2f} M operations/s"
        text += f", by CPU time {quiet / 1e6:.2f} M"
        bar, held = f"≤ {PARQUET_BAR_BYTES} bytes", verdict(each <= PARQUET_BAR_BYTES)
        if what == "export":
            bar += f", ≥ {PARQUET_BAR / 1e6:.0f} M/s"
            held = verdict(each <= PARQUET_BAR_BYTES and rate >= PARQUET_BAR)
            if each <= PARQUET_BAR_BYTES and quiet >= PARQUET_BAR > rate:
                held = "by CPU time only: the machine was busy"
        rows.append([name, text, bar, held])
        shutil.rmtree(target)
    return rows


def main() -> None:
    """Makes the captures, measures, and publishes."""
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory(dir=ROOT / ".bench") as directory:
        for name, ranks, operations in CAPTURES:
            capture = Path(directory) / "capture"
            synthetic(capture, SyntheticSpec(processes=ranks, operations=operations))
            first = name == CAPTURES[0][0]
            bars = (MEMORY_BAR_GB, MANY_MEMORY_BAR_GB, ONE_MEMORY_BAR_GB)
            bar = dict(zip((one[0] for one in CAPTURES), bars, strict=True))[name]
            rows += report_rows(capture, name, bar)
            if first:
                rows[:0] = speed_rows(capture)
                rows += parquet_rows(capture, Path(directory), ranks * operations)
            shutil.rmtree(capture)
            time.sleep(1)
    note = (
        "Simulated captures in trace mode, 2 channels: 64 ranks of 156,250 operations each, 1024 "
        f"of 20,000, one of 20,000,000. {len(os.sched_getaffinity(0))} cores; decoding uses all "
        "of them. Decoding is the median of nine processes, with the grouping by communicator, "
        "function, size and datatype. By CPU time: own CPU time and that of the workers divided by "
        f"the cores. Load average while measuring: {os.getloadavg()[1]:.0f}. Private memory is "
        "what no file backs. Large arrays lie in files, and the kernel keeps as much of them as "
        "there is room for; what is really needed is told by a control group that has no more."
    )
    publish("model-speed", f"{table(['what', 'measured', 'bar', ''], rows)}\n\n{note}")
