"""The lists of marks name tests that exist, and `make quick` has tests of every folder."""

import ast
import re

import pytest

from tests.support.marks import LONG, MEASURING, QUICK, SLOW, WAITING, reason, slow_reason
from tests.support.paths import ROOT

INTEGRATION = ROOT / "tests" / "integration"


@pytest.mark.parametrize("key", [*QUICK, *SLOW, *MEASURING, *WAITING])
def test_a_marked_test_exists(key: str) -> None:
    path, _, prefix = key.partition("::")
    assert (ROOT / "tests" / path).exists()
    if prefix:
        names = [
            node.name
            for node in ast.walk(ast.parse((ROOT / "tests" / path).read_text()))
            if isinstance(node, ast.FunctionDef)
        ]
        assert [name for name in names if name.startswith(prefix)]


@pytest.mark.parametrize(
    "folder", sorted({path.parent.name for path in INTEGRATION.glob("*/test_*.py")})
)
def test_quick_has_a_test_of_each_folder_or_a_reason_why_not(folder: str) -> None:
    chosen = [key for key in QUICK if key.startswith(f"integration/{folder}/")]
    assert bool(chosen) != (f"integration/{folder}" in SLOW)


def test_long_unit_tests_exist() -> None:
    functions = {
        f"{path.relative_to(ROOT / 'tests')}::{name}"
        for path in {ROOT / "tests" / name.partition("::")[0] for name in LONG}
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
    }
    assert LONG - functions == set()


def test_quick_has_no_test_in_real_time() -> None:
    assert not [a for a in QUICK for b in (*MEASURING, *WAITING) if a.startswith(b)]


def test_no_test_both_measures_and_waits() -> None:
    assert not [a for a in MEASURING for b in WAITING if a.startswith(b) or b.startswith(a)]


def test_a_reason_is_given_for_folders_files_and_tests() -> None:
    assert reason(SLOW, "tests/browser/test_timeline_page.py::test_x") == "opens Chromium"
    assert reason(SLOW, "tests/unit/nccl/test_facts.py::test_x") is None


@pytest.mark.parametrize(
    ("node", "is_slow"),
    [
        ("tests/unit/nccl/test_facts.py::test_x", False),
        ("tests/integration", False),
        ("tests/integration/live", True),
        ("tests/integration/report/test_report.py", False),
        ("tests/integration/report/test_report.py::test_straggler_is_named", False),
        ("tests/integration/report/test_report.py::test_forms", True),
        ("tests/integration/report/test_known_numbers.py", True),
    ],
)
def test_quick_leaves_out_what_others_stand_for(node: str, is_slow: bool) -> None:
    assert bool(slow_reason(node)) == is_slow
