"""Verbs run in forked children of this process: with a time limit, and their memory measured."""

import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ncclscope.cli import main

_LARGEST_ADDRESS_SPACE = 16 << 30  # the address space of thread stacks and maps is not memory


@dataclass(frozen=True, slots=True)
class VerbRun:
    """How a run of a verb ended."""

    words: tuple[str, ...]
    code: int  # exit code; of a signal its negative number
    timed_out: bool
    took_s: float
    peak_bytes: int
    output: str  # stdout; its beginning
    errors: str  # stderr; its end

    @property
    def problem(self) -> str:
        """What must not happen, in a word; "" where nothing of it did."""
        if self.timed_out:
            return "hang"
        if self.code < 0:
            return f"signal {-self.code}"
        if "Traceback (most recent call last)" in self.errors:
            return "traceback"
        if "a mistake in ncclscope" in self.errors or "Exception ignored" in self.errors:
            return "mistake"
        texts = self.output + self.errors
        if any(not c.isprintable() and c not in "\n\t\r" for c in texts):
            return "control character"
        return ""


def run_verb(words: Sequence[str], limit_s: float = 30.0, *, kept_bytes: int = 1 << 16) -> VerbRun:
    """Runs `ncclscope WORDS` in a child."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            _become_verb(words, out.fileno(), errors.fileno())
        timed_out = not _wait(child, began + limit_s)
        if timed_out:
            os.kill(child, signal.SIGKILL)
        _, status, usage = os.wait4(child, 0)
        took_s = time.monotonic() - began
        out.seek(0)
        size = errors.seek(0, os.SEEK_END)
        errors.seek(max(size - kept_bytes, 0))
        return VerbRun(
            tuple(words), os.waitstatus_to_exitcode(status), timed_out, took_s,
            usage.ru_maxrss << 10, out.read(kept_bytes).decode(errors="ignore"),
            errors.read().decode(errors="ignore"),
        )  # fmt: skip


def _wait(child: int, until: float) -> bool:
    """Whether a child ended by that time; it stays to be waited for."""
    pause_s = 0.002
    while time.monotonic() < until:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
            return True
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.05)
    return False


def _become_verb(words: Sequence[str], out: int, errors: int) -> None:
    """Runs the verb and ends this process."""
    code = 99
    try:
        os.setpgid(0, 0)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (out, 1), (errors, 2)):
            os.dup2(source, target)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
        resource.setrlimit(resource.RLIMIT_AS, (_LARGEST_ADDRESS_SPACE, _LARGEST_ADDRESS_SPACE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            code = main(list(words))
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
