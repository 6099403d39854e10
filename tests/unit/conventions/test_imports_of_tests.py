"""Tests share code through tests/support only: a test file can be read, moved and deleted alone."""

import ast
from pathlib import Path

import pytest

from tests.support.paths import ROOT

TESTS = sorted((ROOT / "tests").rglob("*.py"))
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def imported_modules(path: Path) -> list[str]:
    """Dotted names of all modules and members that a file imports."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [*TESTS, *BENCHMARKS], ids=relative)
def test_only_support_is_imported_from_tests(path: Path) -> None:
    from_tests = [name for name in imported_modules(path) if name.split(".")[0] == "tests"]
    allowed = ("tests.support",)
    if path.is_relative_to(ROOT / "tests" / "gpu"):  # a program of several modules, no tests
        allowed += ("tests.gpu",)
    wrong = [name for name in from_tests if not name.startswith(allowed)]
    assert not wrong, "move what is shared to tests/support"


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_the_package_imports_no_tests(path: Path) -> None:
    outside = ("tests", "benchmarks", "tools")
    assert not [name for name in imported_modules(path) if name.split(".")[0] in outside]
