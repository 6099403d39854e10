"""A real Prometheus scrapes `ncclscope serve` beside a simulated job of four processes."""

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ncclscope
from ncclscope.api import Capture
from ncclscope.live.metrics import METRICS, SYSTEM_METRICS
from ncclscope.simulation.scenario import (
    BandwidthDrop,
    Call,
    Communicators,
    Late,
    Never,
    Range,
    Scenario,
)
from tests.support.fake_machine import FAKE_NVML, HEALTHY_GPU, gpus_file, whole_tree
from tests.support.metrics_server import serving
from tests.support.paths import ROOT
from tests.support.simulated_jobs import running
from tests.support.waiting import eventually
from tools import dashboards, metrics_page, rules

QUICK = rules.Times(window="6s", history="8s", recent="6s", patience="2s")
QUICK_SECONDS = 8.0  # longer than the window
HEALTHY = Scenario(
    name="scraped",
    ranks=4,
    ranks_per_host=2,
    steps=100_000,
    compute_ms=20,
    give_up_s=0,
    communicators=(Communicators("world"), Communicators("tp", 2)),
    calls=(
        Call("tp", "AllReduce", 1 << 20),
        Call("world", "AllReduce", 1 << 20),
        Call("world", "AllGather", 1 << 18, "bfloat16"),
    ),
)
pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None,
    reason="prometheus is missing and `make packages` could not install it",
)


@contextmanager
def prometheus(target: str, scratch: Path, times: rules.Times = QUICK) -> Iterator[str]:
    """A Prometheus that scrapes `target` every second, with our rules; its address."""
    (scratch / "rules.yml").write_text(rules.rules_yaml(times, "1s"))
    config = (
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yml]\n"
        "scrape_configs:\n- job_name: nccl\n  static_configs: [{targets: ['%s']}]\n"
    )
    (scratch / "prometheus.yml").write_text(config % target.removeprefix("http://"))
    log = (scratch / "prometheus.log").open("w+")
    words = ["prometheus", f"--config.file={scratch}/prometheus.yml"]
    words += [f"--storage.tsdb.path={scratch}/data", "--web.listen-address=127.0.0.1:0"]
    server = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        found = eventually(
            lambda: re.search(
                r'msg="Listening on" address=([\d.:]+)', (scratch / "prometheus.log").read_text()
            )
        )
        # It listens before it answers.
        eventually(lambda: "Server is ready" in (scratch / "prometheus.log").read_text())
        yield f"http://{found[1]}"
    finally:
        server.terminate()
        server.wait(timeout=60)
        log.close()


def ask(url: str, path: str, **parameters: str) -> Any:
    """The data of an answer of Prometheus' API."""
    query = urllib.parse.urlencode(parameters)
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{query}", timeout=60) as answer:
        body = json.load(answer)
    assert body["status"] == "success", body
    return body["data"]


def value(url: str, expression: str) -> list[dict[str, Any]]:
    """An instant vector."""
    found: list[dict[str, Any]] = ask(url, "query", query=expression)["result"]
    return found


def answered(url: str, expression: str) -> None:
    """Waits until there are data."""
    try:
        eventually(lambda: value(url, expression), 20)
    except AssertionError:
        raise AssertionError(f"no data: {expression}") from None


def firing(url: str) -> set[str]:
    """Alerts that fire now."""
    alerts = ask(url, "alerts")["alerts"]
    return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def filled(expression: str) -> str:
    """A panel's expression as Grafana would send it."""
    expression = re.sub(r"\$(run|host|communicator|function|size)", ".+", expression)
    return expression.replace("$__rate_interval", QUICK.window)


@contextmanager
def watched(
    scenario: Scenario,
    scratch: Path,
    *options: str,
    mode: str = "profile",
    times: rules.Times = QUICK,
) -> Iterator[str]:
    """A job, its server and a Prometheus that looks at it."""
    capture = scratch / "capture"
    with running(scenario, capture, "--mode", mode):
        eventually(lambda: len(list(capture.glob("*/tally"))) == scenario.ranks)
        with (
            serving(capture, "--all-hosts", *options) as target,
            prometheus(target, scratch, times) as url,
        ):
            yield url


def test_every_panel_has_data_and_no_alert_fires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A machine of files, with two GPUs.
    monkeypatch.setenv("PYTHONPATH", str(FAKE_NVML))
    gpus = gpus_file(tmp_path / "gpus.json", HEALTHY_GPU, HEALTHY_GPU)
    monkeypatch.setenv("FAKE_NVML", str(gpus))
    root = str(whole_tree(tmp_path / "root"))
    # So slow a network that what this machine does besides is no drop of the job's bandwidth.
    training = (
        Range("enumerate(DataLoader)#Loader.__next__", 0, ms=1, source=2),
        Range("ncclscope.tokens", 3, source=5, mark=1, payload=1 << 12),
        Range("ncclscope.step", 3, source=5, mark=1),
    )
    calm = replace(HEALTHY, bandwidth_gb_s=0.02, ranges=training)
    # In profile mode nobody records what is in flight.
    options = ("--system", "--system-root", root)
    with watched(calm, tmp_path, *options, mode="trace") as url:
        eventually(lambda: value(url, "ncclscope:busbw"))
        expressions = [
            filled(query.expression)
            for dashboard in dashboards.DASHBOARDS
            for panel in dashboard.panels
            for query in panel.queries
        ]
        time.sleep(QUICK_SECONDS)
        for expression in expressions:
            answered(url, expression)
        for record in rules.records(QUICK):
            # Nothing is sent in this job, and an account of waiting takes longer.
            if record.name != "ncclscope:rank_p2p_excess:rate" and "waiting_" not in record.name:
                assert value(url, record.name), record.name
        # The same number twice: bytes by the recorder's counts, and by Prometheus' own sum.
        (recorded,) = value(url, 'sum(ncclscope_bytes_total{function="AllGather"})')
        (counted,) = value(url, 'sum(ncclscope_operations_total{function="AllGather"})')
        assert float(recorded["value"][1]) == float(counted["value"][1]) * (1 << 18)
        assert firing(url) == set()


Table = dict[tuple[str, ...], float]


def vector(url: str, expression: str, *labels: str) -> Table:
    """A vector by these labels."""
    return {
        tuple(one["metric"].get(label, "") for label in labels): float(one["value"][1])
        for one in value(url, expression)
    }


# What a metric must say, as the model has it from single events, and not from what the recorder
# counted. Sums by labels, of operations `o` on communicators `c`.
SCOPE = "CASE WHEN c.nodes = 1 THEN 'intra' ELSE 'inter' END"
SIZE = "CASE WHEN o.size_bytes <= 65536 THEN '64K' ELSE '1M' END"
TIMED = "CASE WHEN o.source = 'gpu' THEN 1 ELSE 0 END"
EARLY = "CASE WHEN o.source = 'gpu-early' THEN 1 ELSE 0 END"
FACTOR = """CASE o.function WHEN 'AllReduce' THEN 2.0 ELSE 1.0 END * (c.ranks - 1) / c.ranks"""
WORK = {"rank": "o.global_rank", "function": "o.function", "scope": SCOPE}
SIZED = {"function": "o.function", "size": SIZE, "scope": SCOPE}
HELD = {"communicator": "c.name", "rank": "o.global_rank", "scope": SCOPE}
GPU_SECONDS = f"{TIMED} * o.duration_ns / 1e9"
BUS_BYTES = f"{TIMED} * {FACTOR} * o.size_bytes"
MODELS = {
    "calls_total": ("1", {"rank": WORK["rank"], "function": WORK["function"]}),
    "operations_total": ("1", WORK),
    "bytes_total": ("o.size_bytes", WORK),
    "gpu_seconds_total": (GPU_SECONDS, WORK),
    "timed_bytes_total": (f"{TIMED} * o.size_bytes", WORK),
    "timed_bus_bytes_total": (BUS_BYTES, WORK),
    "least_gpu_seconds_total": (f"{EARLY} * o.duration_ns / 1e9", WORK),
    "timed_operations_total": (f"{TIMED} + {EARLY}", {}),
    "sized_bus_bytes_total": (BUS_BYTES, SIZED),
    "sized_gpu_seconds_total": (GPU_SECONDS, SIZED),
    "operation_seconds_count": (f"{TIMED} + {EARLY}", {"function": "o.function", "size": SIZE}),
    "operation_seconds_sum": (
        f"({TIMED} + {EARLY}) * o.duration_ns / 1e9",
        {"function": "o.function", "size": SIZE},
    ),
    "communicator_gpu_seconds_total": (GPU_SECONDS, HELD),
    "communicator_operations_total": ("1", {"communicator": "c.name"}),
    "in_flight": ("CASE WHEN o.state = 'done' THEN 0 ELSE 1 END", {"rank": WORK["rank"]}),
}
# Rules, and the sums whose quotient they are; of rates, by seconds.
SECONDS = ""
LONG_S = 600  # longer than the test
RATES = {
    "ncclscope:bytes:rate": ("bytes_total", SECONDS),
    "ncclscope:operations:rate": ("operations_total", SECONDS),
    "ncclscope:algbw": ("timed_bytes_total", "gpu_seconds_total"),
    "ncclscope:busbw": ("timed_bus_bytes_total", "gpu_seconds_total"),
    "ncclscope:sized_busbw": ("sized_bus_bytes_total", "sized_gpu_seconds_total"),
    "ncclscope:rank_gpu_time:rate": ("communicator_gpu_seconds_total", SECONDS),
}


def modelled(opened: Capture, metric: str, *labels: str) -> Table:
    """The same vector by the model."""
    sum_, by = MODELS[metric]
    of_labels = "".join(f", {by[label]}" for label in labels)
    rows = opened.sql(
        f"SELECT sum({sum_}){of_labels} FROM operations o JOIN communicators c USING (communicator)"
        + (f" GROUP BY {of_labels[2:]}" if labels else "")
    ).fetchall()
    return {tuple(map(str, row[1:])): float(row[0]) for row in rows}


def since_first(url: str, opened: Capture, metric: str, labels: list[str]) -> Table:
    """What the model has beyond the first sample of Prometheus."""
    first = f"sum by ({', '.join(labels)}) (min_over_time(ncclscope_{metric}[{LONG_S}s]))"
    before = vector(url, first, *labels)
    whole = modelled(opened, metric, *labels)
    return {key: sum_ - before.get(key, 0.0) for key, sum_ in whole.items()}


def test_numbers_are_the_models(tmp_path: Path) -> None:
    """A job that runs evenly and then stands still: what Prometheus has of it, and the model."""
    capture = tmp_path / "capture"
    calls = (*HEALTHY.calls, Call("world", "SendRecv", 1 << 14))
    job = replace(HEALTHY, never=(Never(rank=3, step=200),), bandwidth_gb_s=0.5, calls=calls)
    with watched(job, tmp_path, mode="trace") as url:
        made = "sum(ncclscope_calls_total)"

        def stands_still() -> bool:
            before = value(url, made)[0]["value"][1]
            time.sleep(3)  # the recorder and Prometheus look once a second
            return bool(value(url, made)[0]["value"][1] == before)

        eventually(lambda: value(url, "ncclscope:busbw"))
        # On a busy machine a job may rest for seconds before it has come that far.
        steps = 200 * len(calls)
        eventually(
            lambda: value(url, f"min(sum by (rank) (ncclscope_calls_total)) >= {steps}"), 120
        )
        eventually(stands_still, 120)
        opened = ncclscope.open(capture)
        for metric, (_, by) in MODELS.items():
            # Sums by all labels; hosts of a rank or of a sum are none of the model's.
            said = vector(url, f"sum by ({', '.join(by)}) (ncclscope_{metric})", *by)
            expected = modelled(opened, metric, *by)
            there = {key: said.get(key, 0.0) for key in expected}  # what is 0 may be absent
            assert set(said) <= set(expected), metric
            assert there == pytest.approx(expected, rel=1e-6), metric
        buckets = vector(url, "sum by (le) (ncclscope_operation_seconds_bucket)", "le")
        for (le,), count in buckets.items():
            below = "" if le == "+Inf" else f"AND duration_ns < {float(le) * 1e9:.0f}"
            rows = opened.sql(f"SELECT count(*) FROM operations WHERE source LIKE 'gpu%' {below}")
            assert rows.fetchall() == [(count,)], le
        assert vector(url, "sum(ncclscope_untimed_operations_total)") == {(): 0.0}
        assert vector(url, "sum(ncclscope_dropped_events_total)") == {(): 0.0}
        # The rules by what was done since the first scrape, within what Prometheus adds at the
        # edges of a range.
        long = replace(QUICK, window=f"{LONG_S}s")
        expressions = {record.name: record.expression for record in rules.records(long)}
        for record, (of, by_what) in RATES.items():
            by_rank = "rank" in record
            dropped = "scope" if by_rank else "rank"
            kept = [label for label in MODELS[of][1] if label != dropped]
            done = since_first(url, opened, of, kept)
            took = since_first(url, opened, by_what, kept) if by_what else {}
            expected = {k: sum_ / took.get(k, LONG_S) for k, sum_ in done.items() if sum_}
            room = 0.1 if by_what else 0.25  # of a quotient, what is added is added to both
            said = vector(url, expressions[record], *kept)
            assert said == pytest.approx(expected, rel=room), record


def test_a_late_rank_and_a_drop_of_bandwidth_fire(tmp_path: Path) -> None:
    job = replace(
        HEALTHY,
        late=(Late(3, 15.0),),
        # A busy machine may have no history of the first one yet: another one follows.
        bandwidth_drops=(
            BandwidthDrop(15_000, 8),
            BandwidthDrop(40_000, 4),
            BandwidthDrop(65_000, 4),
        ),
        communicators=(Communicators("world"),),
        calls=(Call("world", "AllReduce", 1 << 22),),
    )
    with watched(job, tmp_path) as url:
        fired, late_ranks = set[str](), Counter[str]()

        def both() -> bool:
            """Whether each has fired once: either may end before the other begins."""
            fired.update(firing(url))
            late_ranks.update(
                alert["labels"]["rank"]
                for alert in ask(url, "alerts")["alerts"]
                if alert["labels"]["alertname"] == "NcclStraggler" and alert["state"] == "firing"
            )
            return {"NcclStraggler", "NcclBandwidthDrop"} <= fired

        eventually(both, 150)
        # A busy machine makes other ranks late for a moment, too.
        assert late_ranks.most_common(1)[0][0] == "3", late_ranks


def test_a_late_rank_of_a_pipeline_fires_alone(tmp_path: Path) -> None:
    """Nothing but sends and receives: the account of waiting knows for whom they waited."""
    job = replace(
        HEALTHY,
        ranks=8,
        ranks_per_host=0,
        compute_ms=30,
        late=(Late(5, 60.0),),
        communicators=(Communicators("pp"),),
        calls=(Call("pp", "SendRecv", 1 << 18), Call("pp", "SendRecv", 1 << 18)),
    )
    # A window of the account every 6 s, or rarer where that takes long.
    times = replace(QUICK, window="60s")
    with watched(job, tmp_path, "--interval", "0.2", mode="trace", times=times) as url:

        def late_ranks() -> list[str]:
            return [
                alert["labels"].get("rank", "")
                for alert in ask(url, "alerts")["alerts"]
                if alert["labels"]["alertname"] == "NcclStraggler" and alert["state"] == "firing"
            ]

        assert eventually(late_ranks, 150) == ["5"]


def test_a_hang_fires_and_a_dead_process_goes_stale(tmp_path: Path) -> None:
    job = replace(HEALTHY, never=(Never(rank=3, step=40),))
    with watched(job, tmp_path) as url:
        eventually(lambda: "NcclHang" in firing(url), 60)
        # A hang shows as one: nothing is done any more, and that takes ever longer.
        (quiet,) = value(url, "max(ncclscope_seconds_since_progress)")
        assert float(quiet["value"][1]) > 10
        (pid,) = {one["metric"]["pid"] for one in value(url, 'ncclscope_rank_info{rank="1"}')}
        subprocess.run(["kill", "-9", pid], check=True)
        eventually(lambda: "NcclProcessDied" in firing(url), 30)
        eventually(lambda: not value(url, 'ncclscope_operations_total{rank="1"}'), 30)


def test_committed_files_are_current() -> None:
    for name, text in dashboards.files().items():
        assert (ROOT / "src/ncclscope/dashboards" / name).read_text() == text, (
            "run python -m tools.dashboards"
        )


def test_the_page_of_metrics_is_current() -> None:
    assert metrics_page.PAGE.read_text() == metrics_page.page(), "run python -m tools.metrics_page"
    named = {label for metric in (*METRICS, *SYSTEM_METRICS) for label in metric.labels}
    informing = {
        "nccl",
        "mode",
        "capture",
        "simulation",
        "pid",
        "gpu",
        "gpu_uuid",
        "bus_id",
        "model",
    }
    informing |= {"ranks", "nodes", "inferred"}
    assert named - informing <= set(metrics_page.LABELS)


def test_rules_by_promtool(tmp_path: Path) -> None:
    """Made-up series through the rules as they are committed."""
    shutil.copy(ROOT / "src/ncclscope/dashboards" / "ncclscope-rules.yml", tmp_path)
    cases = ROOT / "tests" / "data" / "rules-test.yml"
    (tmp_path / "test.yml").write_text(cases.read_text())
    ran = subprocess.run(
        ["promtool", "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_exposition_by_promtool(tmp_path: Path) -> None:
    capture = tmp_path / "capture"
    with running(Scenario(ranks=2, steps=100_000), capture, "--mode", "profile"):
        eventually(lambda: len(list(capture.glob("*/tally"))) == 2)
        with serving(capture) as url:
            text = urllib.request.urlopen(f"{url}/metrics", timeout=60).read()
    ran = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
