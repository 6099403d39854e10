"""A call that writes fails: a sentence, and no partial file under its own name.

The whole sweep is benchmarks/reader_faults.py.
"""

import errno
from pathlib import Path

import pytest

from tests.support.reader_faults import build_library, sweep
from tests.support.writer import SyntheticSpec, synthetic


@pytest.mark.parametrize("verb", ["export csv", "pack"])
def test_calls_that_fail(verb: str, tmp_path: Path) -> None:
    synthetic(tmp_path / "whole", SyntheticSpec(processes=1, operations=5))
    library = build_library(tmp_path)
    result = sweep(library, tmp_path / "whole", tmp_path / "work", verb, 4, (errno.ENOSPC,))
    assert result.calls > 3
    assert len(result.ends) >= 3
    assert set(result.ends.values()) <= {"sentence", "whole"}, result.ends
    assert "sentence" in result.ends.values()
