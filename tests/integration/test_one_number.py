"""One capture has one set of numbers, whichever output is asked: report, Parquet, timeline, the single
HTML file and metrics agree on calls, bytes, times, medians and bandwidths.

The exported rows are the reference: the numbers are computed from them here, by nccl-tests' formulas
and without the package's own measures.
"""

import base64
import gzip
import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import duckdb
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ncclscope.simulation.scenario import Call, Communicators, Late, Never, Scenario
from tests.support import npm
from tests.support.paths import ROOT
from tests.support.player import ncclscope
from tests.support.simulated_jobs import running
from tests.support.waiting import eventually

RANKS, STEPS = 4, 21
# Sends and receives have early stamps, collectives exact ones. The last step hangs, so that the job
# stays as it is while all outputs are made; all sizes of a function are in classes of their own.
JOB = Scenario(
    name="one-number",
    ranks=RANKS,
    steps=STEPS,
    compute_ms=1,
    give_up_s=300,
    communicators=(Communicators("world"), Communicators("tp", 2)),
    calls=(
        Call("world", "AllReduce", 1 << 20),
        Call("tp", "AllReduce", 1 << 14),
        Call("world", "AllGather", 1 << 18, "bfloat16"),
        Call("world", "SendRecv", 1 << 16),
    ),
    late=(Late(2, 1.0, 5),),
    never=(Never(3, STEPS - 1),),
)
CALLS = (RANKS * STEPS - 1) * 5  # a SendRecv is two calls; rank 3 does not make the last step
EXACT = ("gpu", "gpu-repaired", "gpu-partial")
BUS_FACTORS = {
    "AllReduce": lambda n: 2 * (n - 1) / n,
    "AllGather": lambda n: (n - 1) / n,
    "Send": lambda n: 1.0,
    "Recv": lambda n: 1.0,
}
SIZE_CLASSES = {1 << 14: "64K", 1 << 16: "64K", 1 << 18: "1M", 1 << 20: "1M"}
BUCKET = 0.02  # width of the buckets from which a report takes percentiles
Key = tuple[str, str, int]  # communicator, function, bytes


@dataclass(frozen=True)
class Numbers:
    """What the outputs must agree on, of one communicator, function and size."""

    operations: int
    bytes: int
    timed: int
    time_ns: int
    median_ns: float | None
    busbw_gbs: float | None


@dataclass(frozen=True)
class Outputs:
    """Everything that was written about one capture."""

    exported: dict[Key, Numbers]
    report: dict[str, Any]
    metrics: str
    served: dict[Key, Numbers]
    page: Path


# ---- making outputs ----
def command(*arguments: str | Path) -> str:
    ran = ncclscope(*arguments)
    assert ran.returncode == 0, ran.stderr
    return str(ran.stdout)


def exported(dataset: Path) -> dict[Key, Numbers]:
    """From the rows of the Parquet export."""
    query = f"""
        select communicator_name, "function", size_bytes, count(*), sum(size_bytes),
            count(duration_ns), sum(duration_ns), quantile_disc(duration_ns, 0.5),
            sum(size_bytes) filter (source in {EXACT}), sum(duration_ns) filter (source in {EXACT}),
            any_value(c.ranks)
        from '{dataset}/operations/*/*.parquet' o
        join '{dataset}/communicators/*.parquet' c using (communicator)
        where part_of is null and state <> 'captured'
        group by 1, 2, 3
    """
    numbers = {}
    for name, function, size, *values in duckdb.sql(query).fetchall():
        *plain, exact_bytes, exact_ns, ranks = values
        factor = BUS_FACTORS[function](ranks)
        busbw = exact_bytes * factor / exact_ns if exact_ns else None
        numbers[name, function, size] = Numbers(*plain, busbw)
    return numbers


@contextmanager
def timeline_server(capture: Path) -> Iterator[str]:
    """The address of a served timeline."""
    words = [sys.executable, "-m", "ncclscope", "timeline", str(capture), "--no-open"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=60)


def from_span(groups: list[dict[str, Any]], size: int) -> dict[Key, Numbers]:
    """Groups of a timeline's statistics, restricted to one size."""
    names = ("operations", "bytes", "timed", "time_ns", "median_ns", "busbw_gbs")
    return {
        (group["communicator"], group["function"], size): Numbers(*(group[n] for n in names))
        for group in groups
    }


def served(capture: Path, sizes: set[int]) -> dict[Key, Numbers]:
    """From the timeline's server."""
    with timeline_server(capture) as address:

        def ask(what: str, **query: object) -> Any:
            url = f"{address.rstrip('/')}/api/{what}?{urlencode(query)}"
            with urllib.request.urlopen(url, timeout=60) as answer:
                return json.load(answer)

        eventually(lambda: ask("state")["progress"] == "" and ask("scene")["has_model"])
        scene = ask("scene")
        rows = ",".join(map(str, operation_rows(scene)))
        numbers: dict[Key, Numbers] = {}
        for size in sizes:
            span = {"rows": rows, "t0": 0, "t1": scene["span_ns"] + 1, "least": size, "most": size}
            numbers |= from_span(ask("span", **span)["groups"], size)
        return numbers


def operation_rows(lane: dict[str, Any]) -> list[int]:
    """Rows of operations of a scene, or of a lane in it."""
    own = [
        row
        for track in lane.get("tracks", ())
        if track["kind"] == "operation"
        for row in track["rows"]
    ]
    children = lane["lanes"] if "lanes" in lane else lane["children"]
    return own + [row for child in children for row in operation_rows(child)]


DRIVER = """
import { readFileSync } from "node:fs";
import { EmbeddedSource } from "./embedded.mjs";
const { data, sizes } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const source = new EmbeddedSource(data);
const rows = data.rows.map((_, row) => row);
const groups = {};
for (const size of sizes) {
  const span = await source.span(rows, 0, data.scene.span_ns + 1, { leastBytes: size, mostBytes: size });
  groups[size] = span.groups;
}
console.log(JSON.stringify(groups));
"""


def in_page(page: Path, sizes: set[int], folder: Path) -> dict[Key, Numbers]:
    """From the data and the code of the single HTML file, run by Node."""
    web = ROOT / "web"
    npm.install(web, "THE NUMBERS OF THE SINGLE HTML FILE ARE NOT CHECKED")
    packed = re.search(r'<script type="application/gzip" id="data">([^<]+)<', page.read_text())
    assert packed is not None
    data = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    (folder / "data.json").write_text(json.dumps({"data": data, "sizes": sorted(sizes)}))
    (folder / "driver.mjs").write_text(DRIVER)
    bundle = folder / "embedded.mjs"
    words = ("npx", "esbuild", "src/embedded.ts", "--bundle", "--format=esm", f"--outfile={bundle}")
    built = npm.run(web, *words)
    assert built.returncode == 0, built.stderr
    ran = npm.run(folder, "node", "driver.mjs", "data.json")
    assert ran.returncode == 0, ran.stderr
    numbers: dict[Key, Numbers] = {}
    for size, groups in json.loads(ran.stdout).items():
        numbers |= from_span(groups, int(size))
    return numbers


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    """All outputs about one job, which hangs in its last step meanwhile."""
    folder = tmp_path_factory.mktemp("one-number")
    capture, dataset, page = folder / "capture", folder / "dataset", folder / "page.html"

    def settled() -> dict[str, Any] | None:
        if len(list(capture.glob("*/tally"))) < RANKS:
            return None
        report: dict[str, Any] = json.loads(command("report", "--json", capture))
        calls = sum(value for _, value in samples(command("serve", capture, "--once"), "calls"))
        total = report["total"]
        done = (total["calls"], total["timed"], calls) == (CALLS, (STEPS - 1) * RANKS * 5, CALLS)
        return report if done else None

    with running(JOB, capture, "--mode", "trace"):
        report = eventually(settled)
        metrics = command("serve", capture, "--once")
        command("export", capture, "--to", "parquet", "-o", dataset)
        numbers = exported(dataset)
        command("timeline", capture, "--html", page)
        by_timeline = served(capture, {size for _, _, size in numbers})
    return Outputs(numbers, report, metrics, by_timeline, page)


@pytest.fixture(scope="module")
def of_page(outputs: Outputs, tmp_path_factory: pytest.TempPathFactory) -> dict[Key, Numbers]:
    sizes = {size for _, _, size in outputs.exported}
    return in_page(outputs.page, sizes, tmp_path_factory.mktemp("page"))


def samples(text: str, name: str) -> list[tuple[dict[str, str], float]]:
    """Labels and values of a metric."""
    return [
        (sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == f"ncclscope_{name}_total"
    ]


# ---- the reference itself ----
def test_the_job_has_exact_and_early_times_and_uneven_durations(outputs: Outputs) -> None:
    keys = {
        ("world", "AllReduce", 1 << 20), ("tp", "AllReduce", 1 << 14), ("tp#2", "AllReduce", 1 << 14),
        ("world", "AllGather", 1 << 18), ("world", "Send", 1 << 16), ("world", "Recv", 1 << 16),
    }  # fmt: skip
    assert set(outputs.exported) == keys
    for (_, function, _), numbers in outputs.exported.items():
        assert (numbers.busbw_gbs is None) == (function in ("Send", "Recv"))
        assert numbers.timed % 2 == 0
        assert numbers.timed < numbers.operations


# ---- report ----
def test_report_has_the_exported_numbers(outputs: Outputs) -> None:
    groups = {
        (group["communicator"], group["function"], group["size_bytes"]): group
        for group in outputs.report["operations"]
    }
    assert groups.keys() == outputs.exported.keys()
    for key, numbers in outputs.exported.items():
        group = groups[key]
        assert group["calls"] == group["operations"] == numbers.operations
        assert (group["total_bytes"], group["timed"]) == (numbers.bytes, numbers.timed)
        assert group["total_ns"] == numbers.time_ns
        assert group["busbw_gbs"] == pytest.approx(numbers.busbw_gbs)
        assert group["duration_ns"]["median"] == pytest.approx(numbers.median_ns, rel=BUCKET)


# ---- timeline ----
def test_the_timeline_has_the_exported_numbers(outputs: Outputs) -> None:
    check_counts(outputs.served, outputs.exported)
    check_medians(outputs.served, outputs.exported)


def test_the_timeline_has_the_exported_bandwidths(outputs: Outputs) -> None:
    check_bandwidths(outputs.served, outputs.exported)


# ---- single HTML file ----
def test_the_single_file_has_the_exported_numbers(
    outputs: Outputs, of_page: dict[Key, Numbers]
) -> None:
    check_counts(of_page, outputs.exported)


def test_the_single_file_has_the_exported_medians(
    outputs: Outputs, of_page: dict[Key, Numbers]
) -> None:
    check_medians(of_page, outputs.exported)


def test_the_single_file_has_the_exported_bandwidths(
    outputs: Outputs, of_page: dict[Key, Numbers]
) -> None:
    check_bandwidths(of_page, outputs.exported)


def check_counts(found: dict[Key, Numbers], expected: dict[Key, Numbers]) -> None:
    assert found.keys() == expected.keys()
    for key, numbers in expected.items():
        for name in ("operations", "bytes", "timed", "time_ns"):
            assert getattr(found[key], name) == getattr(numbers, name), (key, name)


def check_medians(found: dict[Key, Numbers], expected: dict[Key, Numbers]) -> None:
    assert {key: numbers.median_ns for key, numbers in found.items()} == {
        key: numbers.median_ns for key, numbers in expected.items()
    }


def check_bandwidths(found: dict[Key, Numbers], expected: dict[Key, Numbers]) -> None:
    for key, numbers in expected.items():
        assert found[key].busbw_gbs == pytest.approx(numbers.busbw_gbs), key


# ---- metrics ----
def by_function(outputs: Outputs, field: str) -> dict[str, float]:
    sums: dict[str, float] = {}
    for (_, function, _), numbers in outputs.exported.items():
        sums[function] = sums.get(function, 0) + getattr(numbers, field)
    return sums


@pytest.mark.parametrize(
    ("metric", "field"), [("calls", "operations"), ("operations", "operations"), ("bytes", "bytes")]
)
def test_metrics_have_the_exported_counts(outputs: Outputs, metric: str, field: str) -> None:
    sums: dict[str, float] = {}
    for labels, value in samples(outputs.metrics, metric):
        sums[labels["function"]] = sums.get(labels["function"], 0) + value
    assert sums == by_function(outputs, field)


def test_metrics_have_the_exported_times(outputs: Outputs) -> None:
    sums: dict[str, float] = {}
    for metric in ("gpu_seconds", "least_gpu_seconds"):
        for labels, value in samples(outputs.metrics, metric):
            sums[labels["function"]] = sums.get(labels["function"], 0) + value * 1e9
    assert sums == pytest.approx(by_function(outputs, "time_ns"))


def test_metrics_have_the_exported_bandwidths(outputs: Outputs) -> None:
    """By function and class of sizes: bus bytes and the time they took are counters."""
    sized: dict[tuple[str, str], dict[str, float]] = {}
    for metric in ("sized_bus_bytes", "sized_gpu_seconds"):
        for labels, value in samples(outputs.metrics, metric):
            sums = sized.setdefault((labels["function"], labels["size"]), {})
            sums[metric] = sums.get(metric, 0) + value
    found = {
        key: sums["sized_bus_bytes"] / sums["sized_gpu_seconds"] / 1e9
        for key, sums in sized.items()
        if sums["sized_gpu_seconds"]
    }
    expected: dict[tuple[str, str], list[float]] = {}
    for (_, function, size), numbers in outputs.exported.items():
        if numbers.busbw_gbs is not None:
            bus, time = expected.setdefault((function, SIZE_CLASSES[size]), [0.0, 0.0])
            expected[function, SIZE_CLASSES[size]] = [
                bus + numbers.busbw_gbs * numbers.time_ns,
                time + numbers.time_ns,
            ]
    assert found == pytest.approx({key: bus / time for key, (bus, time) in expected.items()})
