"""The list of slow tests names tests that there are."""

import ast

import pytest

from tests.support.paths import ROOT
from tests.support.slow_tests import SLOW, why_slow


@pytest.mark.parametrize("key", SLOW)
def test_a_slow_test_exists(key: str) -> None:
    path, _, prefix = key.partition("::")
    assert (ROOT / "tests" / path).exists()
    if prefix:
        names = [
            node.name
            for node in ast.walk(ast.parse((ROOT / "tests" / path).read_text()))
            if isinstance(node, ast.FunctionDef)
        ]
        assert [name for name in names if name.startswith(prefix)]


def test_a_reason_is_given_for_folders_files_and_tests() -> None:
    assert why_slow("tests/browser/test_timeline_page.py::test_x") == "opens Chromium"
    assert why_slow("tests/unit/nccl/test_facts.py::test_x") is None
