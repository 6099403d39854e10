"""Writes src/ncclscope/dashboards: Grafana dashboards and Prometheus rules.

`python -m tools.dashboards`.

Tests check that the committed files are current, and check them against Grafana's own types.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rules import rules_yaml

FOLDER = Path(__file__).parents[1] / "src" / "ncclscope" / "dashboards"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 24  # of Grafana's grid
RUN = 'run=~"$run"'
HOST = 'run=~"$run", host=~"$host"'
ON_HOST = 'host=~"$host"'
SIZED = 'run=~"$run", host=~"$host", function=~"$function", size=~"$size"'
COMMUNICATOR = 'run=~"$run", communicator=~"$communicator"'


@dataclass(frozen=True)
class Query:
    """An expression, and the legend of its series."""

    expression: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel of a dashboard."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 12
    height: int = 8
    help: str = ""
    repeat: str = ""  # a variable: a panel for each of its values


@dataclass(frozen=True)
class Dashboard:
    """One dashboard."""

    uid: str
    title: str
    panels: tuple[Panel, ...]


def _by_scope(scope: str, record: str) -> Query:
    name = {"intra": "intra-node", "inter": "inter-node"}[scope]
    return Query(f'{record}{{{RUN}, scope="{scope}"}}', f"{{{{function}}}}, {name}")


def _by_size(scope: str) -> Query:
    labels = f'{RUN}, function=~"$function", size=~"$size", scope="{scope}"'
    return Query(f"ncclscope:sized_busbw{{{labels}}}", "{{function}}, up to {{size}}")


_SIZES = f"sum by (le, size) (rate(ncclscope_operation_seconds_bucket{{{HOST}}}[$__rate_interval]))"
OVERVIEW = Dashboard(
    "ncclscope-job", "NCCL job",
    (
        Panel("Hangs", (Query(f"max by (run) (ncclscope_hung{{{RUN}}})", "{{run}}"),),
              "bool_yes_no", "stat", 4, 4),
        Panel("Processes alive",
              (Query(f"sum by (run) (ncclscope_process_up{{{RUN}}})", "{{run}}"),),
              "short", "stat", 4, 4),
        Panel("Steps/s", (Query(f"avg by (run) (ncclscope_steps_per_second{{{RUN}}})", "{{run}}"),),
              "short", "stat", 4, 4, "Where calls repeat in a pattern."),
        Panel("Oldest operation in flight",
              (Query(f"max by (run) (ncclscope_oldest_in_flight_seconds{{{RUN}}})", "{{run}}"),),
              "s", "stat", 4, 4),
        Panel("What `ncclscope status` says",
              (Query(f"ncclscope_verdict{{{RUN}}}", "{{communicator}}: {{verdict}}"),),
              "short", "table", 8, 4),
        Panel("Steps/s beside bandwidth",
              (Query(f"avg by (run) (ncclscope_steps_per_second{{{RUN}}})", "steps/s, {{run}}"),),
              "short"),
        Panel("Bus bandwidth", (_by_scope("intra", "ncclscope:busbw"),
                                _by_scope("inter", "ncclscope:busbw")), "Bps"),
        Panel("Bytes/s",
              (Query(f"ncclscope:bytes:rate{{{RUN}}}", "{{function}}, {{scope}}"),), "Bps"),
        Panel("Operations/s",
              (Query(f"ncclscope:operations:rate{{{RUN}}}", "{{function}}, {{scope}}"),), "ops"),
        Panel("Seconds since progress",
              (Query(f"ncclscope_seconds_since_progress{{{HOST}}}", "rank {{rank}}"),), "s"),
        Panel("In flight", (Query(f"ncclscope_in_flight{{{HOST}}}", "rank {{rank}}"),)),
        Panel("Training step",
              (Query(f"max by (run) (ncclscope_training_step_seconds{{{RUN}}})", "{{run}}"),),
              "s", "timeseries", 8),
        Panel("Share of a step that waits for data",
              (Query(f"avg by (run) (rate(ncclscope_data_wait_seconds_total{{{RUN}}}"
                     "[$__rate_interval]))", "{{run}}"),),
              "percentunit", "timeseries", 8),
        Panel("Tokens/s",
              (Query(f"sum by (run) (rate(ncclscope_training_tokens_total{{{RUN}}}"
                     "[$__rate_interval]))", "{{run}}"),),
              "short", "timeseries", 8),
    ),
)  # fmt: skip
BANDWIDTH = Dashboard(
    "ncclscope-bandwidth", "NCCL bandwidth: intra-node against inter-node",
    (
        Panel("Bus bandwidth, intra-node", (_by_scope("intra", "ncclscope:busbw"),), "Bps"),
        Panel("Bus bandwidth, inter-node", (_by_scope("inter", "ncclscope:busbw"),), "Bps"),
        Panel("Bus bandwidth by size, intra-node", (_by_size("intra"),), "Bps"),
        Panel("Bus bandwidth by size, inter-node", (_by_size("inter"),), "Bps"),
        Panel("Algorithm bandwidth, intra-node", (_by_scope("intra", "ncclscope:algbw"),), "Bps"),
        Panel("Algorithm bandwidth, inter-node", (_by_scope("inter", "ncclscope:algbw"),), "Bps"),
        Panel("Median duration by size",
              (Query(f"histogram_quantile(0.5, {_SIZES})", "up to {{size}}"),), "s"),
        Panel("99th percentile by size",
              (Query(f"histogram_quantile(0.99, {_SIZES})", "up to {{size}}"),), "s"),
        Panel("Operations/s by size",
              (Query(f"sum by (function, size) (rate(ncclscope_operation_seconds_count{{{HOST}}}"
                     "[$__rate_interval]))", "{{function}}, up to {{size}}"),), "ops", width=24),
        Panel("Durations of $function",
              (Query(f"sum by (le) (rate(ncclscope_operation_seconds_bucket{{{SIZED}}}"
                     "[$__rate_interval]))", "{{le}}"),), "s", "heatmap", 24, 10,
              "How many operations took how long, of the sizes that are chosen above.",
              "function"),
    ),
)  # fmt: skip
RANKS = Dashboard(
    "ncclscope-ranks", "NCCL ranks",
    (
        Panel("Waiting of each rank over the one that waited least",
              (Query(f"ncclscope:rank_excess:rate{{{COMMUNICATOR}}}",
                     "{{communicator}}, rank {{rank}}"),), "percentunit", "status-history", 24, 10,
              "Of ranks in one communicator. Dark: waits for others. The one that stays at 0 is "
              "waited for."),
        Panel("Made the others wait",
              (Query(f"topk(8, ncclscope:rank_lateness:rate{{{COMMUNICATOR}}})",
                     "rank {{rank}} in {{communicator}}"),), "percentunit"),
        Panel("Where ranks run", (Query(f"ncclscope_rank_info{{{RUN}}}", ""),), "short", "table"),
        Panel("Durations, all functions and sizes",
              (Query(f"sum by (le) (rate(ncclscope_operation_seconds_bucket{{{HOST}}}"
                     "[$__rate_interval]))", "{{le}}"),), "s", "heatmap", 24, 10),
    ),
)  # fmt: skip
_TIMED = f"sum by (run, host) (rate(ncclscope_timed_operations_total{{{HOST}}}[$__rate_interval]))"
_UNTIMED = _TIMED.replace("timed_operations", "untimed_operations")
_TIMED_SHARE = f"{_TIMED} / ({_TIMED} + {_UNTIMED} > 0)"
HEALTH = Dashboard(
    "ncclscope-health", "ncclscope itself",
    (
        Panel("Dropped events/s",
              (Query(f"sum by (run, host, reason) (rate(ncclscope_dropped_events_total{{{HOST}}}"
                     "[$__rate_interval]))", "{{host}}: {{reason}}"),)),
        Panel("Operations without a GPU time/s",
              (Query(f"sum by (run, reason) (rate(ncclscope_untimed_operations_total{{{HOST}}}"
                     "[$__rate_interval]))", "{{reason}}"),)),
        Panel("Operations with a GPU time, of all",
              (Query(_TIMED_SHARE, "{{run}} on {{host}}"),), "percentunit"),
        Panel("Rejected stamps/s",
              (Query(f"sum by (run, reason) (rate(ncclscope_rejected_stamps_total{{{HOST}}}"
                     "[$__rate_interval]))", "{{reason}}"),)),
        Panel("CPU of the recorder's threads",
              (Query(f"rate(ncclscope_recorder_cpu_seconds_total{{{HOST}}}[$__rate_interval])",
                     "rank {{rank}}"),), "percentunit"),
        Panel("CPU of serve", (Query("rate(ncclscope_serve_cpu_seconds_total[$__rate_interval])",
                                     "{{instance}}"),), "percentunit"),
        Panel("A reading takes", (Query("ncclscope_reading_seconds", "{{instance}}"),), "s"),
        Panel("Series folded into `other`",
              (Query(f"ncclscope_folded_series{{{HOST}}}", "{{run}} on {{host}}"),)),
        Panel("Cannot be read",
              (Query("ncclscope_unreadable_processes", "{{instance}}: processes"),
               Query("ncclscope_unreadable_captures", "{{instance}}: directories"))),
    ),
)  # fmt: skip


def _rate(metric: str, legend: str) -> Query:
    return Query(f"rate(ncclscope_{metric}_total{{{ON_HOST}}}[$__rate_interval])", legend)


def _now(metric: str, legend: str) -> Query:
    return Query(f"ncclscope_{metric}{{{ON_HOST}}}", legend)


_GPU, _LINK = "{{host}} GPU {{gpu}}", "{{host}} {{link}}"
_EXACT = f"rate(ncclscope_gpu_seconds_total{{{HOST}}}[$__rate_interval])"
_AT_LEAST = _EXACT.replace("gpu_seconds", "least_gpu_seconds")
# A vector cannot have two series with the same labels.
_BOTH = f'{_EXACT} or label_replace({_AT_LEAST}, "exact", "no", "", "")'
_MEAN_IN_NCCL = f"avg by (host) (sum by (host, rank) ({_BOTH}))"
_SYSTEM_PANELS = (
    Panel("GPUs busy beside time in NCCL",
          (Query(f"avg by (host) (ncclscope_gpu_utilization_ratio{{{ON_HOST}}})",
                 "{{host}}: busy"), Query(_MEAN_IN_NCCL, "{{host}}: in NCCL")), "percentunit",
          help="Both high: GPUs that look busy wait in NCCL's kernels."),
    Panel("Slowed GPUs", (_now("gpu_slowed", _GPU + ": {{reason}}"),), "short", "status-history",
          help="1 while clocks are lowered. SW power cap is usual on busy GPUs."),
    Panel("Clock of multiprocessors", (_now("gpu_sm_clock_hertz", _GPU),), "hertz"),
    Panel("Power", (_now("gpu_power_watts", _GPU),), "watt"),
    Panel("Temperature", (_now("gpu_temperature_celsius", _GPU),), "celsius"),
    Panel("GPU memory in use",
          (Query(f"ncclscope_gpu_memory_used_bytes{{{ON_HOST}}} / "
                 f"ncclscope_gpu_memory_bytes{{{ON_HOST}}}", _GPU),), "percentunit"),
    Panel("PCIe",
          (Query(f"(rate(ncclscope_gpu_pcie_bytes_total{{{ON_HOST}}}[$__rate_interval]) or "
                 f"ncclscope_gpu_pcie_bytes_per_second{{{ON_HOST}}}) / on (host, gpu) "
                 f"group_left () ncclscope_gpu_pcie_capacity_bytes_per_second{{{ON_HOST}}}",
                 _GPU + " {{direction}}"),), "percentunit",
          help="Of what the link can move as it is trained now; about 80 % is all of it."),
    Panel("NVLink", (_rate("gpu_nvlink_bytes", _GPU + " {{direction}}"),), "Bps"),
    Panel("Network", (_rate("link_bytes", _LINK + " {{direction}}"),), "Bps"),
    Panel("Network errors/s", (_rate("link_errors", _LINK + ": {{reason}}"),)),
    Panel("GPU errors/s",
          (_rate("gpu_ecc_errors", _GPU + ": ECC {{reason}}"),
           _rate("gpu_xid_errors", _GPU + ": Xid"),
           _rate("gpu_pcie_replays", _GPU + ": PCIe replays"),
           _rate("gpu_nvlink_errors", _GPU + ": NVLink"))),
    Panel("CPU",
          (Query(f"rate(ncclscope_host_cpu_busy_seconds_total{{{ON_HOST}}}[$__rate_interval]) / "
                 f"ncclscope_host_cpus{{{ON_HOST}}}", "{{host}}"),), "percentunit"),
    Panel("Pressure", (_rate("host_pressure_seconds", "{{host}}: {{who}} for {{resource}}"),),
          "percentunit"),
    Panel("Memory available", (_now("host_memory_available_bytes", "{{host}}"),), "bytes"),
)  # fmt: skip
SYSTEM = Dashboard("ncclscope-machine", "The machine beside NCCL", _SYSTEM_PANELS)
DASHBOARDS = (OVERVIEW, BANDWIDTH, RANKS, SYSTEM, HEALTH)


# Everything that Grafana's types require of each kind of panel (tools/grafana), so that nothing
# depends on the defaults of a Grafana release.
_LEGEND = {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True}
_TOOLTIP = {"mode": "multi", "sort": "desc"}
_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {"legend": _LEGEND, "tooltip": _TOOLTIP},
    "table": {"frameIndex": 0, "showHeader": True},
    "stat": {
        "reduceOptions": {"calcs": ["lastNotNull"], "values": False},
        "orientation": "auto",
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "textMode": "auto",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
    },
    "status-history": {
        "legend": {**_LEGEND, "showLegend": False},
        "tooltip": {"mode": "single", "sort": "none"},
        "rowHeight": 0.9,
        "showValue": "never",
    },
    "heatmap": {
        "calculate": False,
        "color": {
            "mode": "scheme",
            "scheme": "Oranges",
            "scale": "exponential",
            "exponent": 0.5,
            "steps": 64,
            "fill": "dark-orange",
            "reverse": False,
        },
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "legend": {"show": True},
        "showValue": "never",
        "tooltip": {"mode": "single", "yHistogram": False},
        "yAxis": {"axisPlacement": "left", "unit": "s"},
    },
}


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
        "sort": 3,
    }


def _variables() -> list[dict[str, Any]]:
    return [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        _variable("run", "run", "label_values(ncclscope_run_info, run)"),
        _variable("host", "host", 'label_values(ncclscope_run_info{run=~"$run"}, host)'),
        _variable(
            "communicator",
            "communicator",
            'label_values(ncclscope_communicator_gpu_seconds_total{run=~"$run"}, communicator)',
        ),
        *(
            _variable(
                name,
                name,
                f'label_values(ncclscope_operation_seconds_count{{run=~"$run"}}, {name})',
            )
            for name in ("function", "size")
        ),
    ]


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    tabular = panel.kind == "table"
    form = {"table": "table", "heatmap": "heatmap"}.get(panel.kind, "time_series")
    targets = [
        {
            "refId": chr(ord("A") + place),
            "datasource": SOURCE,
            "expr": query.expression,
            "legendFormat": query.legend,
            "format": form,
            "instant": tabular,
            "range": not tabular,
        }
        for place, query in enumerate(panel.queries)
    ]
    made: dict[str, Any] = {
        "id": number,
        "title": panel.title,
        "type": panel.kind,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": _OPTIONS[panel.kind],
    }
    if panel.help:
        made["description"] = panel.help
    if panel.repeat:
        made |= {"repeat": panel.repeat, "repeatDirection": "h", "maxPerRow": 2}
    if panel.kind == "status-history":
        made["fieldConfig"]["defaults"]["color"] = {"mode": "continuous-BlYlRd"}
    return made


def grafana(dashboard: Dashboard) -> dict[str, Any]:
    """A dashboard as Grafana's JSON."""
    panels, x, y, row = [], 0, 0, 0
    for number, panel in enumerate(dashboard.panels, 1):
        if x + panel.width > _WIDTH:
            x, y, row = 0, y + row, 0
        panels.append(_panel(panel, number, x, y))
        x, row = x + panel.width, max(row, panel.height)
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["nccl", "ncclscope"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "links": [
            {
                "type": "dashboards",
                "tags": ["ncclscope"],
                "title": "ncclscope",
                "icon": "external link",
                "tooltip": "",
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
                "targetBlank": False,
            }
        ],
        "panels": panels,
    }


def files() -> dict[str, str]:
    """The files of that folder by name."""
    made = {f"{d.uid}.json": json.dumps(grafana(d), indent=1) + "\n" for d in DASHBOARDS}
    return made | {"ncclscope-rules.yml": rules_yaml()}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text)
