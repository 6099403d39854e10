"""A call that writes fails: a sentence, and no partial file under its own name.

The whole sweep is benchmarks/reader_faults.py.
"""

import errno
from pathlib import Path

import pytest

from tests.support.reader_faults import VERBS, build_library, run_with_fault, writes_of
from tests.support.writer import SyntheticSpec, synthetic


@pytest.mark.parametrize("name", ["export csv", "pack"])
def test_calls_that_fail(name: str, tmp_path: Path) -> None:
    library, whole, work = build_library(tmp_path), tmp_path / "whole", tmp_path / "work"
    synthetic(whole, SyntheticSpec(processes=1, operations=5))
    calls = writes_of(library, whole, work, VERBS[name])
    assert calls > 3
    for number in (1, calls - 1, calls):
        end = run_with_fault(library, whole, work, VERBS[name], number, errno.ENOSPC)
        assert end in ("sentence", "whole"), (number, end)
