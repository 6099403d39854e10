"""Writes docs/metrics.md from the list of metrics: `python -m tools.metrics_page`."""

from pathlib import Path

from ncclscope.live.metrics import (
    COUNTER,
    DURATION_BOUNDS_NS,
    EVERYWHERE,
    HISTOGRAM,
    INFO,
    INSPECTOR_METRICS,
    METRICS,
    OWN_METRICS,
    SIZE_NAMES,
    SYSTEM_METRICS,
    Metric,
)
from tools.rules import Times, alerts, records

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
LABELS = {
    "run": "the job's number where a scheduler or torchrun gave one, else the capture's name; "
    "of two that run at once, the later has its path",
    "host": "the host that the processes run on",
    "rank": "global rank",
    "function": "AllReduce, AllGather, … as NCCL calls them",
    "scope": "`intra`: all ranks of the communicator on one node; `inter`: on several",
    "size": "class of message sizes by its upper end: " + ", ".join(SIZE_NAMES),
    "communicator": "its name, never its hash; `other` beyond the budget",
    "reason": "why, in a word or two",
    "origin": "what was longer than usual where waiting began: host after sync, host, launch, gpu, "
    "transfer; or structure, start-up, clock error, unknown",
    "gpu": "the GPU's number on its host, as NVML counts",
    "link": "a network interface (eth0), or a port of an InfiniBand card (mlx5_0/1)",
    "direction": "`tx` sent, `rx` received",
    "resource": "cpu, memory, io: what was waited for",
    "who": "`some`: at least one, `full`: all that were not idle",
    "verdict": "as `ncclscope status` says it: ok, waiting, never_called, …",
    "le": f"upper end of a bucket, from {DURATION_BOUNDS_NS[0] / 1e3:g} µs to "
    f"{DURATION_BOUNDS_NS[-1] / 1e9:g} s in steps of four",
}
_SUFFIX = {COUNTER: "_total", INFO: "_info", HISTOGRAM: "_bucket, _count, _sum"}


def _row(metric: Metric) -> str:
    suffix = _SUFFIX.get(metric.kind, "")
    labels = ", ".join(metric.labels) or "–"
    return f"| `{metric.full_name}{suffix}` | {metric.kind} | {labels} | {metric.help} |"


def page() -> str:
    """The text of the page."""
    times = Times()
    lines = [
        "# Metrics",
        "",
        "What [`ncclscope serve`](verbs/serve.md) gives to Prometheus. This page is made from the",
        "catalogue in the code (`python -m tools.metrics_page`).",
        "",
        f"Every series of a job has the labels {' and '.join(f'`{e}`' for e in EVERYWHERE)}.",
        "A job has at most 500 series on a host (`--series`); what comes later has the label value",
        "`other` in place of communicator, size, function or rank, and `ncclscope_folded_series`",
        "says how many that are. Series of communicators and jobs that are gone disappear.",
        "",
        "| metric | type | labels | meaning |",
        "|---|---|---|---|",
        *map(_row, METRICS),
        "",
        "About `serve` itself, without labels:",
        "",
        "| metric | type | labels | meaning |",
        "|---|---|---|---|",
        *map(_row, OWN_METRICS),
        "",
        "## The machine",
        "",
        "`serve --system` adds these, about the host whether a job runs on it or not; they have no",
        "label `run`. What a machine does not have is absent; about 30 series a GPU and 12 a link,",
        "beside the budget of jobs.",
        "",
        "| metric | type | labels | meaning |",
        "|---|---|---|---|",
        *map(_row, SYSTEM_METRICS),
        "",
        "## NCCL Inspector's names",
        "",
        "`serve --inspector-names` adds these, so that dashboards made for Inspector's Prometheus",
        "output go on working. Names, labels and values of labels are Inspector's (`gpu`: GPU0 …,",
        "`message_size`: 1-2MB … of one rank's share, `algo_proto`: RING_LL …); `run` and `host`",
        "come first. The numbers are ours, and differ where Inspector's are not right: all sizes",
        "and all operations count, also those below 8 KiB and those whose channels do not begin at",
        "0; bandwidth is Σ bytes / Σ time, not a mean of bandwidths; stamps were checked. As with",
        "Inspector, times of Send, Recv, TREE and NVLS are the least they can be, and bandwidths",
        "the most. A",
        "communicator that did nothing for 30 s has no series: a hung job does not show its last",
        "healthy value. They are the first to be folded into `other` where the budget is short;",
        "give `--series` more room for them.",
        "",
        "| metric | type | labels | meaning |",
        "|---|---|---|---|",
        *map(_row, INSPECTOR_METRICS),
        "",
        "## Labels",
        "",
        "| label | values |",
        "|---|---|",
        *(f"| {name} | {meaning} |" for name, meaning in LABELS.items()),
        "",
        "## Rules",
        "",
        "`ncclscope dashboards` writes these, for `rule_files` in Prometheus. What a rank",
        "waits for other hosts cannot be known on one host, and is not claimed there: the rules",
        "add up all hosts of a job.",
        "",
        "| recorded | expression |",
        "|---|---|",
        *(f"| `{r.name}` | `{r.expression}` |" for r in records(times)),
        "",
        "| alert | severity | lasts | expression |",
        "|---|---|---|---|",
        *(f"| {a.name} | {a.severity} | {a.lasts} | `{a.expression}` |" for a in alerts(times)),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
