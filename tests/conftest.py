"""What tests of several folders need: a /dev/shm of their own where they may mount one, a browser;
marks on slow tests.

Any process with the plugin brings in what dead ones left in shared memory, so tests that run side
by side would clean up after each other.
"""

import ctypes
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.slow_tests import why_slow

CLONE_NEWNS = 0x00020000
MS_REC, MS_PRIVATE = 0x4000, 0x40000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that `make quick` leaves out."""
    for item in items:
        if reason := why_slow(item.nodeid):
            item.add_marker(pytest.mark.slow(reason))


def pytest_configure() -> None:
    """Gives this test process a private /dev/shm, as root, and its children compiled modules."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        return
    libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=8g,mode=1777")
    assert not list(Path("/dev/shm").iterdir())


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
