"""Dashboards are what Grafana's own types allow: @grafana/schema, by the TypeScript compiler."""

import copy
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import npm
from tests.support.paths import ROOT

TYPES = ROOT / "tools" / "grafana"
COMMITTED = sorted((ROOT / "src/ncclscope/dashboards").glob("*.json"))
Json = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    """TypeScript and Grafana's types."""
    npm.install(TYPES, "THE DASHBOARDS ARE NOT CHECKED AGAINST GRAFANA'S TYPES")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where literals are written: below the types, so that the compiler finds their package."""
    (TYPES / "made").mkdir(exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=TYPES / "made"))
    yield made
    shutil.rmtree(made)


def compiled(folder: Path, dashboards: dict[str, Json]) -> dict[str, str]:
    """What the compiler has against each of them; nothing where it has nothing."""
    for name, dashboard in dashboards.items():
        text = json.dumps(dashboard, indent=1)
        (folder / f"{name}.ts").write_text(
            'import type { Dashboard } from "../../dashboard";\n'
            f"export const made: Dashboard = {text};\n"
        )
    settings = {"extends": "../../tsconfig.json", "include": ["*.ts", "../../dashboard.ts"]}
    (folder / "tsconfig.json").write_text(json.dumps(settings))
    ran = npm.run(TYPES, "npx", "tsc", "--noEmit", "--pretty", "false", "-p", folder)
    errors = dict.fromkeys(dashboards, "")
    name = ""
    for line in ran.stdout.splitlines():
        if (place := re.match(r"(\S+)\.ts\(\d+,\d+\): error", line)) is not None:
            name = Path(place[1]).name
        assert name in errors, ran.stdout
        errors[name] += line + "\n"
    assert (ran.returncode != 0) == any(errors.values()), ran.stdout + ran.stderr
    return errors


def test_all_dashboards_fit(folder: Path) -> None:
    assert COMMITTED
    errors = compiled(folder, {path.stem: json.loads(path.read_text()) for path in COMMITTED})
    assert not any(errors.values()), "\n".join(errors.values())


def _panel(dashboard: Json, kind: str) -> Json:
    return next(panel for panel in dashboard["panels"] if panel["type"] == kind)


def _options(dashboard: Json, kind: str) -> Json:
    options: Json = _panel(dashboard, kind)["options"]
    return options


# By name: what is made wrong, and a word of the compiler's complaint.
WRONG: dict[str, tuple[Callable[[Json], object], str]] = {
    "unknown": (lambda d: d.update(refreshes="10s"), "refreshes"),
    "type": (lambda d: d.update(editable="yes"), "boolean"),
    "missing": (lambda d: d.pop("schemaVersion"), "schemaVersion"),
    "tooltip": (lambda d: d.update(graphTooltip=7), "7"),
    "kind": (lambda d: _panel(d, "stat").update(type="statt"), "statt"),
    "grid": (lambda d: _panel(d, "table")["gridPos"].update(width=3), "width"),
    "field": (lambda d: _panel(d, "stat")["fieldConfig"]["defaults"].update(units="s"), "units"),
    "query": (lambda d: _panel(d, "stat")["targets"][0].update(expression="up"), "expression"),
    "line-option": (lambda d: _options(d, "timeseries").update(legends={}), "legends"),
    "legend": (lambda d: _options(d, "timeseries")["legend"].update(placement="left"), "left"),
    "stat-option": (lambda d: _options(d, "stat").update(colorMode="rainbow"), "rainbow"),
    "table-option": (lambda d: _options(d, "table").pop("showHeader"), "showHeader"),
    "variable": (lambda d: d["templating"]["list"][1].update(multiple=True), "multiple"),
    "variable-type": (lambda d: d["templating"]["list"][1].update(type="querry"), "querry"),
    "link": (lambda d: d["links"][0].pop("keepTime"), "keepTime"),
}


def test_what_does_not_fit_is_refused(folder: Path) -> None:
    right = json.loads((ROOT / "src/ncclscope/dashboards" / "ncclscope-job.json").read_text())
    made = {}
    for name, (spoil, _) in WRONG.items():
        made[name] = copy.deepcopy(right)
        spoil(made[name])
    errors = compiled(folder, {"right": right, **made})
    assert errors.pop("right") == ""
    assert [name for name, (_, word) in WRONG.items() if word not in errors[name]] == []


def test_heatmap_and_history_options_are_checked_too(folder: Path) -> None:
    right = json.loads((ROOT / "src/ncclscope/dashboards" / "ncclscope-ranks.json").read_text())
    heatmap, history = copy.deepcopy(right), copy.deepcopy(right)
    _options(heatmap, "heatmap")["color"]["schema"] = "Oranges"
    _options(history, "status-history")["rowHeight"] = "0.9"
    errors = compiled(folder, {"right": right, "heatmap": heatmap, "history": history})
    assert errors["right"] == ""
    assert "schema" in errors["heatmap"]
    assert "rowHeight" in errors["history"] or "string" in errors["history"]
