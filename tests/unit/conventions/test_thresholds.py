"""A threshold of analyses and rules has one home: two that are equal today drift apart tomorrow."""

import ast
import re
from collections import defaultdict

from ncclscope.live.top_model import LATE_SHARE
from ncclscope.live.waiting_account import STANDS_OUT
from tests.support.paths import ROOT

# Equal by chance, each with its own meaning, or lengths of lists.
APART = {
    "EXPLAINED": "by a slower link; by a rank's delays",
    "LEAST": "collectives, instances, calls, transfers",
    "MANY": "ranks with a gap to others; ranks in one finding",
    "MATTERS": "a change; an imbalance",
    "MOST": "findings, or changes, of a kind",
    "MOST_NAMED": "names in a sentence",
    "SAMPLE": "operations; edges",
    "TIMES_NOISE": "of links; of ranks' loads",
}


def numbers_in(text: str) -> list[tuple[str, float]]:
    """Constants of a module that are numbers, without leading underscores."""
    found = []
    for statement in ast.parse(text).body:
        if not isinstance(statement, ast.Assign):
            continue
        targets, values = [statement.targets[0]], [statement.value]
        if isinstance(targets[0], ast.Tuple) and isinstance(values[0], ast.Tuple):
            targets, values = targets[0].elts, values[0].elts
        for target, value in zip(targets, values, strict=True):
            number = value.value if isinstance(value, ast.Constant) else None
            if isinstance(target, ast.Name) and isinstance(number, int | float):
                found.append((target.id.lstrip("_"), float(number)))
    return found


def doubled(modules: dict[str, str]) -> dict[tuple[str, float], list[str]]:
    """Constants of one name and value, and the modules that have them."""
    homes = defaultdict(list)
    for name, text in modules.items():
        for constant in numbers_in(text):
            homes[constant].append(name)
    return {constant: names for constant, names in homes.items() if len(names) > 1}


def test_a_doubled_threshold_is_seen() -> None:
    modules = {"a": "_SLOW, OTHER = 1.5, 2\n", "b": "SLOW = 1.5  # times\nOTHER = 3\n"}
    assert doubled(modules) == {("SLOW", 1.5): ["a", "b"]}


def test_a_threshold_has_one_home() -> None:
    source = ROOT / "src" / "ncclscope"
    files = [*source.glob("analysis/**/*.py"), *source.glob("diagnose/**/*.py")]
    found = doubled({str(path.relative_to(source)): path.read_text() for path in files})
    assert {key: names for key, names in found.items() if key[0] not in APART} == {}
    assert {name for name, _ in found} >= set(APART), "no longer doubled: take it off the list"


def test_the_alert_for_stragglers_has_the_threshold_of_top() -> None:
    rules = (ROOT / "src" / "ncclscope" / "dashboards" / "ncclscope-rules.yml").read_text()
    (alert,) = re.findall(r"alert: NcclStraggler\n\s+expr: '(.*)'", rules)
    assert f"> {LATE_SHARE} and" in alert
    assert f"({STANDS_OUT} * avg" in alert
