"""Ctrl-C arrives, whatever swallows it on the way."""

import argparse
import contextlib
import os
import signal
import time
from collections.abc import Iterator

import pytest

from ncclscope import cli
from ncclscope.cli import interrupts
from ncclscope.cli.interrupts import INTERRUPTED, Interrupts
from tests.support.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def as_in_a_terminal() -> Iterator[None]:
    """Python's own handler: other tests, or a shell that starts jobs in the background, may have
    set another.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before or signal.default_int_handler)  # None: one in C


def interrupt() -> None:
    """A signal to this process, as from the terminal."""
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(PATIENCE_S)  # handlers run between two steps of the program


def test_a_swallowed_interrupt_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "_AGAIN_S", 0.01)
    with Interrupts() as received:
        with contextlib.suppress(BaseException):  # as extension modules do
            interrupt()
        with pytest.raises(KeyboardInterrupt):
            time.sleep(PATIENCE_S)
    assert received.received
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_in_a_destructor_comes_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted:
        def __del__(self) -> None:
            interrupt()

    monkeypatch.setattr(interrupts, "_AGAIN_S", 0.01)
    monkeypatch.setattr("sys.unraisablehook", print)
    with Interrupts():
        Interrupted()
        with pytest.raises(KeyboardInterrupt):
            time.sleep(PATIENCE_S)
    assert capsys.readouterr().out == ""


def test_cleaning_up_is_not_interrupted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    send = signal.pthread_kill
    monkeypatch.setattr(interrupts, "_AGAIN_S", 0.01)
    monkeypatch.setattr(signal, "pthread_kill", lambda *to: (sent.append(1), send(*to)))
    cleaned: list[int] = []

    def work() -> None:
        try:
            interrupt()
        finally:
            end = time.monotonic() + PATIENCE_S
            while len(sent) < 3 and time.monotonic() < end:
                time.sleep(0.01)
            cleaned.append(len(sent))

    with Interrupts(), pytest.raises(KeyboardInterrupt):
        work()
    assert cleaned[0] >= 3


def test_what_a_library_makes_of_an_interrupt_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_: argparse.Namespace) -> int:
        try:
            interrupt()
        except KeyboardInterrupt:
            raise ImportError("Encountered an error while initializing the extension.") from None
        return 0

    monkeypatch.setattr("ncclscope.cli.plugin_path.run", run)
    assert cli.main(["plugin-path"]) == INTERRUPTED
    assert capsys.readouterr().err == ""
