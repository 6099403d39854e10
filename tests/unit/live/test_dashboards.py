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


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Where literals are written: below the types, so that the compiler finds their package."""
    (TYPES / "made").mkdir(exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=TYPES / "made"))
    yield made
    shutil.rmtree(made)


def compile_all(folder: Path, dashboards: dict[str, Json]) -> dict[str, str]:
    """What the compiler has against each of them; nothing where it has nothing."""
    for name, dashboard in dashboards.items():
        text = json.dumps(dashboard, indent=1)
        (folder / f"{name}.ts").write_text(
            'import type { Dashboard } from "../../dashboard";\n'
            f"export const made: Dashboard = {text};\n"
        )
    settings = {"extends": "../../tsconfig.json", "include": ["*.ts", "../../dashboard.ts"]}
    (folder / "tsconfig.json").write_text(json.dumps(settings))
    ran = npm.run(
        TYPES,
        TYPES / "node_modules" / ".bin" / "tsc",
        "--noEmit",
        "--pretty",
        "false",
        "-p",
        folder,
    )
    errors = dict.fromkeys(dashboards, "")
    name = ""
    for line in ran.stdout.splitlines():
        if (place := re.match(r"(\S+)\.ts\(\d+,\d+\): error", line)) is not None:
            name = Path(place[1]).name
        assert name in errors, ran.stdout
        errors[name] += line + "\n"
    assert (ran.returncode != 0) == any(errors.values()), ran.stdout + ran.stderr
    return errors


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


def _spoilt(dashboard: Json, spoil: Callable[[Json], object]) -> Json:
    made = copy.deepcopy(dashboard)
    spoil(made)
    return made


# The same of panels that another dashboard has.
WRONG_RANKS: dict[str, tuple[Callable[[Json], object], str]] = {
    "heatmap": (lambda d: _options(d, "heatmap")["color"].update(schema="Oranges"), "schema"),
    "history": (lambda d: _options(d, "status-history").update(rowHeight="0.9"), "string"),
}


@pytest.fixture(scope="module")
def errors(folder: Path) -> dict[str, str]:
    """Of the committed dashboards and of those that are made wrong, by name. They are compiled
    together: reading Grafana's types takes longer than all of them.
    """
    made = {path.stem: json.loads(path.read_text()) for path in COMMITTED}
    job, ranks = made["ncclscope-job"], made["ncclscope-ranks"]
    wrong = {name: _spoilt(job, spoil) for name, (spoil, _) in WRONG.items()}
    wrong |= {name: _spoilt(ranks, spoil) for name, (spoil, _) in WRONG_RANKS.items()}
    return compile_all(folder, made | wrong)


def test_all_dashboards_fit(errors: dict[str, str]) -> None:
    assert COMMITTED
    assert not any(errors[path.stem] for path in COMMITTED), "\n".join(errors.values())


@pytest.mark.parametrize("name", [*WRONG, *WRONG_RANKS])
def test_what_does_not_fit_is_refused(name: str, errors: dict[str, str]) -> None:
    assert (WRONG | WRONG_RANKS)[name][1] in errors[name]
