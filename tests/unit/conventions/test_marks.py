"""The lists of marks name tests that exist."""

import ast

import pytest

from tests.support.marks import MEASURING, SLOW, WAITING, reason
from tests.support.paths import ROOT


@pytest.mark.parametrize("key", [*SLOW, *MEASURING, *WAITING])
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


def test_no_test_both_measures_and_waits() -> None:
    assert not [a for a in MEASURING for b in WAITING if a.startswith(b) or b.startswith(a)]


def test_a_reason_is_given_for_folders_files_and_tests() -> None:
    assert reason(SLOW, "tests/browser/test_timeline_page.py::test_x") == "opens Chromium"
    assert reason(SLOW, "tests/unit/nccl/test_facts.py::test_x") is None
