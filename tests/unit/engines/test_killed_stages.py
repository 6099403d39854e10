"""No task that a cluster gets is left out where tests kill workers."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT
from tests.support.stage_faults import KILLED_APART, KILLED_IN, OF_THE_ENGINE

# `engine.map(do, …)`, and the names under which modules pass it on.
_SUBMITS = re.compile(r"(engine|tasks|self|client)\.(map|_map|reduce|each|submit|_submit)$")
_MAY_SUBMIT = re.compile(r"\.(map|_map|reduce|each|submit|_submit)\(")
_WRAPPERS = ("partial", "_Limited")


def tasks_in(path: Path) -> Iterator[str]:
    """The names of what a module has an engine do. What it got as an argument its callers name."""
    text = path.read_text()
    if not _MAY_SUBMIT.search(text):  # most modules
        return
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef):
            continue
        assigned = {
            target.id: node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        given = {argument.arg for argument in function.args.args}
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and _SUBMITS.search(what := ast.unparse(call.func)):
                merge = call.args[2:3] if what.endswith(".reduce") else []
                for do in (call.args[0], *merge):
                    if (name := _name_of(do, assigned)) not in given:
                        yield name


def _name_of(do: ast.expr, assigned: dict[str, ast.expr]) -> str:
    if isinstance(do, ast.Name):
        return _name_of(assigned[do.id], assigned) if do.id in assigned else do.id
    if isinstance(do, ast.Call):
        wrapped = isinstance(do.func, ast.Name) and do.func.id in _WRAPPERS
        return _name_of(do.args[0] if wrapped else do.func, assigned)
    return ast.unparse(do)


def test_a_worker_is_killed_in_every_task() -> None:
    source = ROOT / "src" / "ncclscope"
    found = {name for path in source.rglob("*.py") for name in tasks_in(path)}
    assert {"_decode", "MoveTimes", "merge_instances", "_InWindow", "WriteNode"} <= found
    killed = {*KILLED_IN, *KILLED_APART, *OF_THE_ENGINE}
    assert found <= killed, f"no test kills a worker in {found - killed}"


def test_tasks_are_found_whatever_they_are_called_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        "def one(engine, items, given):\n"
        "    do = partial(_First, 1)\n"
        "    engine.reduce(do, items, merged)\n"
        "    engine.map(given, items)\n"
        "    work.engine.map(Second(2), items)\n"
        "    threads.map(third, items)\n"
    )
    assert sorted(tasks_in(tmp_path / "module.py")) == ["Second", "_First", "merged"]
