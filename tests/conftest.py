"""What tests of several folders need: a /dev/shm of their own where they may mount one, a browser;
marks on slow tests and on tests in real time; CPU time by file and, of `make quick`, by test.
"""

import gc
import os
import shutil
import signal
import sys
from collections.abc import Generator, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.support.cpu_times import CpuClock, calls_above, lines_by_file
from tests.support.marks import (
    LONG,
    LONG_LIST,
    MEASURING,
    QUICK_CPU_S,
    WAITING,
    function_of,
    reason,
    slow_reason,
)
from tests.support.paths import ROOT
from tests.support.private_shm import use_private_shm


def pytest_addoption(parser: pytest.Parser) -> None:
    """An option that writes the list of long unit tests."""
    parser.addoption("--write-long-tests", action="store_true", help=f"write {LONG_LIST.name}")


def _is_quick(config: pytest.Config) -> bool:
    return bool(config.option.markexpr == "not slow")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves files without a test of `make quick` out of it: importing them takes long."""
    if not _is_quick(config) or collection_path.suffix not in ("", ".py"):
        return None
    return bool(slow_reason(str(collection_path.relative_to(ROOT)))) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks slow tests and tests in real time. Slow files go first: what runs last must be short,
    or one worker ends long after the others.
    """
    for item in items:
        if why := slow_reason(item.nodeid):
            item.add_marker(pytest.mark.slow(why))
        if why := reason(MEASURING, item.nodeid):
            item.add_marker(pytest.mark.measuring(why))
        if why := reason(WAITING, item.nodeid):
            item.add_marker(pytest.mark.waiting(why))
    slow_files = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow_files)


def pytest_configure() -> None:
    """Gives this test process a private /dev/shm, as root, and compiled modules to it and to its
    children: rewriting the assertions of all tests takes 8 s of CPU in each process. Interrupts
    reach them, even if a shell started the tests in its background. numpy's threads have no work.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    signal.signal(signal.SIGINT, signal.default_int_handler)
    use_private_shm()


def pytest_collection_finish() -> None:
    """Keeps the garbage collector from thousands of tests and modules that stay to the end."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Lets the collector look at them again: DuckDB complains of what it does not take away."""
    gc.unfreeze()


_CLOCK = CpuClock()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Adds its CPU time to what is reported of a test."""
    report = yield
    report.cpu_s = _CLOCK.lap_s()
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says which files take most CPU time, and what takes long for `make quick`."""
    reports = list(chain.from_iterable(terminalreporter.stats.values()))
    above = calls_above(QUICK_CPU_S, reports)
    if _is_quick(terminalreporter.config) and above:
        terminalreporter.section(f"more than {QUICK_CPU_S} s of CPU: tests/support/marks.py")
        for name, cpu_s in above.items():
            terminalreporter.write_line(f"{cpu_s:8.1f} s {name}")
    if terminalreporter.config.option.write_long_tests:
        ran = {function_of(report.nodeid) for report in reports if hasattr(report, "nodeid")}
        long = LONG - ran | {function_of(name) for name in above if name.startswith("tests/unit")}
        LONG_LIST.write_text("".join(f"{name}\n" for name in sorted(long)))
    if terminalreporter.config.option.durations:
        terminalreporter.section("CPU time by file")
        for line in lines_by_file(reports):
            terminalreporter.write_line(line)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser. Where there is none, who wants one skips, loudly."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip(
            "*** no chromium: THE PAGE IS NOT TESTED; `make packages` as root installs it ***"
        )
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()
