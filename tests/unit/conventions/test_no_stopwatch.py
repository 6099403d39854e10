"""No test measures time: a busy machine would fail it. benchmarks/ measures."""

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

STOPWATCH = re.compile(
    r"\b(perf_counter|process_time|thread_time|ru_utime|ru_stime)\b"
    r"|monotonic\(\) *- *\w+ *<|time\(\) *- *\w+ *<"
)
TESTS = [
    path
    for kind in ("unit", "integration", "browser")
    for path in (ROOT / "tests" / kind).rglob("test_*.py")
]


@pytest.mark.parametrize("path", sorted(TESTS), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_assertion_depends_on_time(path: Path) -> None:
    if path.name != Path(__file__).name:
        assert not STOPWATCH.search(path.read_text()), "count work: tests/support/work_counts.py"
