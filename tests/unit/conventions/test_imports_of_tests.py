"""Tests share code through tests/support only: a test file can be read, moved and deleted alone."""

import ast
import re
from pathlib import Path

from tests.support.paths import ROOT

TESTS = sorted((ROOT / "tests").rglob("*.py"))
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))
SOURCES = sorted((ROOT / "src").rglob("*.py"))


# Lines that look like an import to be found; parsing every file takes seconds.
OF_TESTS = re.compile(r"^\s*(?:from|import)\s+tests(?!\.support\b)", re.M)
OUTSIDE = re.compile(r"^\s*(?:from|import)\s+(?:tests|benchmarks|tools)\b", re.M)
OF_PRIVATE_NAMES = re.compile(r"^\s*from ncclscope[\w.]* import (?:\([^)]*|[^\n]*)\b_\w", re.M)


def imported_modules(path: Path, suspicious: re.Pattern[str]) -> list[str]:
    """Dotted names of all modules and members that a file imports; none if nothing is suspicious."""
    names: list[str] = []
    text = path.read_text()
    for node in ast.walk(ast.parse(text)) if suspicious.search(text) else ():
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports_of_tests(path: Path) -> list[str]:
    """What a file imports from tests outside tests/support."""
    from_tests = [
        name for name in imported_modules(path, OF_TESTS) if name.split(".")[0] == "tests"
    ]
    allowed = ("tests.support",)
    if path.is_relative_to(ROOT / "tests" / "gpu"):  # a program of several modules, no tests
        allowed += ("tests.gpu",)
    return [name for name in from_tests if not name.startswith(allowed)]


def test_only_support_is_imported_from_tests() -> None:
    wrong = {relative(path): imports_of_tests(path) for path in [*TESTS, *BENCHMARKS]}
    assert not {path: names for path, names in wrong.items() if names}, "move it to tests/support"


def test_the_package_imports_no_tests() -> None:
    outside = ("tests", "benchmarks", "tools")
    assert not [
        (relative(path), name)
        for path in SOURCES
        for name in imported_modules(path, OUTSIDE)
        if name.split(".")[0] in outside
    ]


def private_names(path: Path) -> list[str]:
    """Names with an underscore that a file imports from ncclscope."""
    return [
        name
        for name in imported_modules(path, OF_PRIVATE_NAMES)
        if name.startswith("ncclscope.") and name.rpartition(".")[2].startswith("_")
    ]


# Tests of something that has no public name, and why.
PRIVATE = {
    "tests/integration/capture/test_reader.py",
    "tests/integration/cli/test_ctl.py",
    "tests/integration/model/test_saved_model.py",
    "tests/support/writer/files.py",
    "tests/unit/arrays/test_compiled_loops.py",
    "tests/unit/arrays/test_library.py",
    "tests/unit/ingest/test_hostile_files.py",
    "tests/unit/model/process/test_gpu_stamps.py",
}


def test_tests_import_public_names() -> None:
    """A private function may change with its module; its behaviour is tested through public ones."""
    assert {relative(path) for path in TESTS if private_names(path)} == PRIVATE
