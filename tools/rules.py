"""Prometheus rules: rates that dashboards and alerts share, and the alerts.

`python -m tools.dashboards` writes them to src/ncclscope/dashboards. Times are parameters, so that
tests can run the same expressions in a real Prometheus within seconds.
"""

from dataclasses import dataclass

STRAGGLER_SHARE = 0.1  # of the time that other ranks wait for a rank
STANDS_OUT = 1.5  # times the mean of all ranks: else all are late in turn
MOST_OF_HOST = 0.75  # of its ranks: then the host is late
PASSED_ON = 3  # lateness by a rank's own waiting: with less, it passes waiting on
SLOWED_SHARE = 0.2  # of the time that a GPU's clocks are lowered by hardware or heat
BANDWIDTH_SHARE = 0.7  # of the median of its own history


@dataclass(frozen=True)
class Times:
    """The times that rules look back."""

    window: str = "2m"  # of rates
    history: str = "1h"  # that bandwidth is compared with
    recent: str = "10m"  # not part of the history, or a drop would become normal
    patience: str = "2m"  # how long a condition must last that is no emergency


@dataclass(frozen=True)
class Record:
    """A recording rule."""

    name: str
    expression: str


@dataclass(frozen=True)
class Alert:
    """An alerting rule."""

    name: str
    expression: str
    lasts: str
    severity: str
    summary: str
    description: str


def records(times: Times) -> list[Record]:
    """Rates by function, and how long each rank waits compared with its peers."""
    window = times.window

    def by(labels: str, metric: str, matchers: str = "") -> str:
        return f"sum by ({labels}) (rate(ncclscope_{metric}_total{matchers}[{window}]))"

    work = "run, function, scope"
    sized = "run, function, size, scope"
    # Hosts that see only their own ranks may give different communicators the same name.
    group = "run, communicator, host"
    here = by("run, communicator, host, rank", "communicator_gpu_seconds", '{scope="intra"}')
    beyond = by("run, communicator, rank", "communicator_gpu_seconds", '{scope!="intra"}')
    exchanges = by("run, rank", "least_gpu_seconds", '{function=~"Send|Recv"}')
    waited = "sum by (run, rank) (ncclscope:rank_excess:rate)"

    def increase(metric: str) -> str:
        name = f'ncclscope_{metric}_total{{rank!="other"}}'
        return f"sum by (run, host, rank) (increase({name}[{window}]))"

    covered = increase("waiting_account_seconds")
    return [
        Record("ncclscope:bytes:rate", by(work, "bytes")),
        Record("ncclscope:operations:rate", by(work, "operations")),
        Record("ncclscope:algbw", f"{by(work, 'timed_bytes')} / ({by(work, 'gpu_seconds')} > 0)"),
        Record(
            "ncclscope:busbw", f"{by(work, 'timed_bus_bytes')} / ({by(work, 'gpu_seconds')} > 0)"
        ),
        Record(
            "ncclscope:sized_busbw",
            f"{by(sized, 'sized_bus_bytes')} / ({by(sized, 'sized_gpu_seconds')} > 0)",
        ),
        Record("ncclscope:rank_gpu_time:rate", f"{here} or {beyond}"),
        # Ranks of a communicator wait for the last one: the rank with the longest time waited most.
        Record(
            "ncclscope:rank_excess:rate",
            f"ncclscope:rank_gpu_time:rate - on ({group}) group_left () "
            f"min by ({group}) (ncclscope:rank_gpu_time:rate)",
        ),
        # Stages of a pipeline wait for each other in sends and receives.
        Record(
            "ncclscope:rank_p2p_excess:rate",
            f"{exchanges} - on (run) group_left () min by (run) ({exchanges})",
        ),
        Record(
            "ncclscope:rank_waited:rate",
            f"{waited} + on (run, rank) ncclscope:rank_p2p_excess:rate or {waited}",
        ),
        # How much less a rank waited than the mean of the others: that long they waited for it.
        Record(
            "ncclscope:rank_lateness:rate",
            f"(sum by ({group}) (ncclscope:rank_gpu_time:rate) - on ({group}) group_right () "
            f"ncclscope:rank_gpu_time:rate) / on ({group}) group_left () "
            f"(count by ({group}) (ncclscope:rank_gpu_time:rate) - 1 > 0) "
            f"- ncclscope:rank_gpu_time:rate",
        ),
        # Where serve accounts for waiting: how long others waited for what began on a rank, without
        # roots that had no work to hand out. Absent while nothing is accounted for.
        Record("ncclscope:waiting_time:increase", f"{covered} > 0"),
        Record(
            "ncclscope:waiting_caused:increase",
            f"({increase('waiting_caused_seconds')} - {increase('waiting_for_work_seconds')}) "
            "and ncclscope:waiting_time:increase",
        ),
        Record(
            "ncclscope:waiting_caused:share",
            "ncclscope:waiting_caused:increase / on (run, host, rank) "
            "(sum by (run) (ncclscope:waiting_time:increase) - on (run) group_right () "
            "ncclscope:waiting_time:increase > 0)",
        ),
        Record(
            "ncclscope:waiting_caused_by_host:share",
            "sum by (run, host) (ncclscope:waiting_caused:increase) / on (run, host) "
            "(sum by (run) (ncclscope:waiting_time:increase) - on (run) group_right () "
            "sum by (run, host) (ncclscope:waiting_time:increase) > 0)",
        ),
    ]


def _straggler() -> str:
    """Who makes others wait: by the account of waiting where there is one, else by the time in
    collectives alone. Ranks of a host that are all late are named as one.
    """
    rank, host = "ncclscope:waiting_caused:share", "ncclscope:waiting_caused_by_host:share"

    def stands_out(share: str) -> str:
        mean = f"on (run) group_left () ({STANDS_OUT} * avg by (run) ({share}))"
        return f"{share} > {STRAGGLER_SHARE} and {share} > {mean}"

    usual = f"on (run, host) group_left () (avg by (run, host) ({rank}) / 2)"
    all_of_host = (
        f"count by (run, host) ({rank} > {usual}) >= {MOST_OF_HOST} * count by (run, host) ({rank})"
    )
    # A rank that waited elsewhere as long as others wait for it here passed that on. Work beside
    # communication hides a part of its waiting, so a share of it is enough.
    collectives = (
        "ncclscope:rank_lateness:rate - on (run, rank) group_left () "
        f"ncclscope:rank_waited:rate > {STRAGGLER_SHARE} and ncclscope:rank_lateness:rate > "
        f"on (run, rank) group_left () ({PASSED_ON} * ncclscope:rank_waited:rate)"
    )
    return (
        f"({collectives}) unless on (run) {rank} or ({stands_out(rank)}) "
        f"or ({stands_out(host)} and on (run, host) ({all_of_host}))"
    )


def alerts(times: Times) -> list[Alert]:
    """The alerts."""
    return [
        Alert(
            "NcclHang", "max by (run) (ncclscope_hung) == 1", "0s", "critical",
            "NCCL job {{ $labels.run }} hangs",
            "`ncclscope status` says who is to blame: run it on the capture, or ask /status.json.",
        ),
        Alert(
            "NcclProcessDied", "ncclscope_process_up == 0", "0s", "critical",
            "Rank {{ $labels.rank }} of {{ $labels.run }} died on {{ $labels.host }}",
            "The process died; its peers will wait for it.",
        ),
        Alert(
            "NcclStraggler", _straggler(),
            times.patience, "warning",
            "{{ if $labels.rank }}Rank {{ $labels.rank }}{{ else }}Host {{ $labels.host }}"
            "{{ end }} makes {{ with $labels.communicator }}{{ . }}{{ else }}the others{{ end }} "
            "of {{ $labels.run }} wait",
            "The others spend {{ $value | humanizePercentage }} of their time waiting for it.",
        ),
        Alert(
            # By size: a phase of small messages is no drop.
            "NcclBandwidthDrop",
            f"ncclscope:sized_busbw < {BANDWIDTH_SHARE} * quantile_over_time(0.5, "
            f"ncclscope:sized_busbw[{times.history}] offset {times.recent})",
            times.patience, "warning",
            "{{ $labels.function }} up to {{ $labels.size }} of {{ $labels.run }} "
            "({{ $labels.scope }}-node) became slow",
            "Bus bandwidth is {{ $value | humanize }}B/s, less than 70 % of its own history.",
        ),
        Alert(
            "NcclGpuSlowed",
            f'avg_over_time(ncclscope_gpu_slowed{{reason!="SW power cap"}}[{times.window}]) > '
            f"{SLOWED_SHARE}",
            times.patience, "warning",
            "GPU {{ $labels.gpu }} of {{ $labels.host }} is slowed down: {{ $labels.reason }}",
            "For {{ $value | humanizePercentage }} of the time: look at cooling and power.",
        ),
        Alert(
            "NcclGpuXid", f"increase(ncclscope_gpu_xid_errors_total[{times.window}]) > 0",
            "0s", "warning",
            "The driver reports an Xid error of GPU {{ $labels.gpu }} of {{ $labels.host }}",
            "`dmesg` on that host has its number.",
        ),
        Alert(
            "NcclscopeDrops",
            "sum by (run, host, reason) "
            f"(increase(ncclscope_dropped_events_total[{times.window}])) > 0",
            "0s", "info",
            "ncclscope drops events of {{ $labels.run }} on {{ $labels.host }}",
            "Reason: {{ $labels.reason }}. Totals stay exact; single operations are missing.",
        ),
        Alert(
            "NcclscopeIncomplete",
            "count by (run) (count by (run, host, rank) (ncclscope_process_up)) < on (run) "
            "max by (run) (ncclscope_expected_processes)",
            times.patience, "info",
            "Not all ranks of {{ $labels.run }} are seen",
            "Only {{ $value }} of its processes are recorded or served.",
        ),
    ]  # fmt: skip


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def rules_yaml(times: Times | None = None, interval: str = "15s") -> str:
    """The text of a rules file."""
    times = times or Times()
    lines = ["# Made by `python -m tools.dashboards`.", "groups:"]
    lines += ["  - name: ncclscope-rates", f"    interval: {interval}", "    rules:"]
    for record in records(times):
        lines += [f"      - record: {record.name}", f"        expr: {_quoted(record.expression)}"]
    lines += ["  - name: ncclscope-alerts", f"    interval: {interval}", "    rules:"]
    for alert in alerts(times):
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {_quoted(alert.expression)}",
            f"        for: {alert.lasts}",
            f"        labels: {{severity: {alert.severity}}}",
            "        annotations:",
            f"          summary: {_quoted(alert.summary)}",
            f"          description: {_quoted(alert.description)}",
        ]
    return "\n".join(lines) + "\n"
