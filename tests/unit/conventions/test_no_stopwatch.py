"""No test measures time: a busy machine would fail it. benchmarks/ measures."""

import re
from pathlib import Path

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


def test_no_assertion_depends_on_time() -> None:
    others = [path for path in TESTS if path.name != Path(__file__).name]
    wrong = [path for path in others if STOPWATCH.search(path.read_text())]
    assert not wrong, "count work: tests/support/work_counts.py"
