"""Verbs run in forked children of this process: with a time limit, and their memory measured."""

import contextlib
import importlib
import os
import pkgutil
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import ncclscope
from ncclscope.cli import main

_KEPT_BYTES = 1 << 15
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


def import_modules() -> None:
    """Imports what verbs import, so that children need not."""
    for module in pkgutil.walk_packages(ncclscope.__path__, "ncclscope."):
        if not module.name.endswith(("__main__", ".otf2", "ncclscope_attach", "ncclscope_kernels")):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)


def run_verb(words: Sequence[str], limit_s: float = 30.0) -> VerbRun:
    """Runs `ncclscope WORDS` in a child."""
    return run_verbs([words], limit_s)[0]


def run_verbs(verbs: Sequence[Sequence[str]], limit_s: float) -> list[VerbRun]:
    """Runs `ncclscope WORDS` for each of them in one child; in another one after a crash or a
    verb that took longer than its time.
    """
    runs: list[VerbRun] = []
    while len(runs) < len(verbs):
        runs += _run_in_child(verbs[len(runs) :], limit_s)
    return runs


def _run_in_child(verbs: Sequence[Sequence[str]], limit_s: float) -> list[VerbRun]:
    """The runs up to the first one that ended the child."""
    with tempfile.TemporaryDirectory(prefix="verbs-") as folder:
        place = Path(folder)
        child = os.fork()
        if child == 0:
            _run_each(verbs, place)
        runs: list[VerbRun] = []
        for number, words in enumerate(verbs):
            began = time.monotonic()
            done = _wait(child, place / f"{number}.code", began + limit_s)
            took_s = time.monotonic() - began
            ended = done != _RUNS_ON
            usage, code = _end(child, done == _TIMED_OUT) if ended else (_peak(child), 0)
            file = place / f"{number}.code"
            if file.exists():
                ended, code = False, int(file.read_text())
            runs.append(
                VerbRun(tuple(words), code, done == _TIMED_OUT, took_s, usage,
                        _beginning(place / f"{number}.out"), _beginning(place / f"{number}.err"))
            )  # fmt: skip
            if ended:
                return runs
        os.waitpid(child, 0)
        return runs


def _end(child: int, kill: bool) -> tuple[int, int]:
    """Waits for a child; the most memory it had, and its exit code."""
    if kill:
        os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    return usage.ru_maxrss << 10, os.waitstatus_to_exitcode(status)


def _peak(child: int) -> int:
    """The most memory that a running child had."""
    try:
        for line in Path(f"/proc/{child}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    return 0


def _beginning(path: Path) -> str:
    """The beginning and the end of what a verb printed."""
    if not path.exists():
        return ""
    data = path.read_bytes()
    if len(data) > 2 * _KEPT_BYTES:
        data = data[:_KEPT_BYTES] + b"\n" + data[-_KEPT_BYTES:]
    return data.decode(errors="ignore")


_RUNS_ON, _ENDED, _TIMED_OUT = range(3)


def _wait(child: int, code_file: Path, until: float) -> int:
    """Whether the child goes on behind this verb, has ended, or is out of time."""
    pause_s = 0.001
    while time.monotonic() < until:
        if code_file.exists():
            return _RUNS_ON
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
            return _RUNS_ON if code_file.exists() else _ENDED
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.05)
    return _TIMED_OUT


def _run_each(verbs: Sequence[Sequence[str]], place: Path) -> None:
    """Runs the verbs and ends this process."""
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (_LARGEST_ADDRESS_SPACE, _LARGEST_ADDRESS_SPACE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        for number, words in enumerate(verbs):
            for name, target in (("out", 1), ("err", 2)):
                file = os.open(place / f"{number}.{name}", os.O_WRONLY | os.O_CREAT, 0o600)
                os.dup2(file, target)
                os.close(file)
            sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
            sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
            code = _run_verb(words)
            sys.stdout.flush()
            sys.stderr.flush()
            part = place / "code"
            part.write_text(str(code))
            part.rename(place / f"{number}.code")
    finally:
        os._exit(0)


def _run_verb(words: Sequence[str]) -> int:
    try:
        return main(list(words))
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        return 1
