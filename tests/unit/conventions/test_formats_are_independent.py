"""Formats that are read or written do not know each other; the lists of formats say which they are.

`make lint` checks the other rules of imports; a list of formats there would be a second one.
"""

import ast

import pytest

from ncclscope.export.formats import FORMATS as EXPORTS
from ncclscope.ingest import formats as imports
from tests.support.paths import ROOT

SOURCE = ROOT / "src" / "ncclscope"
FORMATS = {
    "export": {export.module for export in EXPORTS.values()},
    "ingest": {form.read.__module__.rpartition(".")[2] for form in imports.FORMATS.values()},
}


def imported(package: str, module: str) -> set[str]:
    """Modules of a package that one of them imports, also inside of functions."""
    found = set()
    for node in ast.walk(ast.parse((SOURCE / package / f"{module}.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    parts = [name.split(".") for name in found if name.startswith(f"ncclscope.{package}.")]
    names = {part[2] for part in parts}
    return {name for name in names if (SOURCE / package / f"{name}.py").exists()}


@pytest.mark.parametrize(
    ("package", "module"), [(p, m) for p, modules in FORMATS.items() for m in sorted(modules)]
)
def test_a_format_reaches_no_other(package: str, module: str) -> None:
    reached: set[str] = set()
    ahead = {module}
    while ahead:
        ahead = {name for one in ahead for name in imported(package, one)} - reached
        reached |= ahead
    assert not reached & FORMATS[package] - {module}
