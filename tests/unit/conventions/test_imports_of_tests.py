"""Tests share code through tests/support only: a test file can be read, moved and deleted alone."""

import ast
import functools
from pathlib import Path

import pytest

from tests.support.paths import ROOT

TESTS = sorted((ROOT / "tests").rglob("*.py"))
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))
SOURCES = sorted((ROOT / "src").rglob("*.py"))


@functools.cache
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


def private_names(path: Path) -> list[str]:
    """Names with an underscore that a file imports from ncclscope."""
    return [
        name
        for name in imported_modules(path)
        if name.startswith("ncclscope.") and name.rpartition(".")[2].startswith("_")
    ]


# Tests of something that has no public name, and why.
PRIVATE = {
    "tests/integration/capture/test_reader.py",
    "tests/integration/cli/test_ctl.py",
    "tests/integration/model/test_saved_model.py",
    "tests/support/writer/files.py",
    "tests/unit/arrays/test_compiled_loops.py",
    "tests/unit/ingest/test_hostile_files.py",
    "tests/unit/model/process/test_gpu_stamps.py",
}


@pytest.mark.parametrize("path", TESTS, ids=relative)
def test_tests_import_public_names(path: Path) -> None:
    """A private function may change with its module; its behaviour is tested through public ones."""
    assert bool(private_names(path)) == (relative(path) in PRIVATE)
