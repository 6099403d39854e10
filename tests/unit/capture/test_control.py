"""Requests to running jobs, made by several at once."""

import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ncclscope.capture import control
from ncclscope.capture.control import last_serial, request


def test_each_request_has_a_number_of_its_own(tmp_path: Path) -> None:
    """A process carries out a number once: of two requests with the same one, one would be lost."""
    with ThreadPoolExecutor(8) as pool:
        serials = list(pool.map(lambda _: request(tmp_path, "mode trace"), range(80)))
    assert sorted(serials) == list(range(1, 81))
    assert last_serial(tmp_path) == 80


def test_a_lock_that_somebody_keeps_holds_no_request_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_LOCK_S", 0.05)
    folder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    assert request(tmp_path, "mode trace") == 1
    os.close(folder)
