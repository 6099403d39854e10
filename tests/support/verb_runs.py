"""Verbs run in forked children of this process: with limits on time and memory, both measured."""

import contextlib
import ctypes
import importlib
import os
import pkgutil
import resource
import select
import signal
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import ncclscope
from ncclscope.cli import main

# Programs, what needs a package, and what a job's own Python runs.
_NOT_IMPORTED = (
    "__main__", ".otf2", "ncclscope_attach", "ncclscope_kernels", "ncclscope_pipelines",
)  # fmt: skip
_KEPT_BYTES = 1 << 15
_LARGEST_FILE = 1 << 30
_ENDED = struct.Struct("<iqd")  # exit code, most memory in bytes, CPU seconds
_M_ARENA_MAX = -8  # of mallopt: each arena reserves 64 MB of addresses


@dataclass(frozen=True, slots=True)
class VerbLimits:
    """What a verb may take."""

    wall_s: float = 30.0
    cpu_s: float = 3600.0
    # The address space of thread stacks and maps is not memory.
    address_space: int = 16 << 30


@dataclass(frozen=True, slots=True)
class VerbRun:
    """How a run of a verb ended."""

    words: tuple[str, ...]
    code: int  # exit code; of a signal its negative number
    timed_out: bool
    took_s: float
    peak_bytes: int
    output: str  # stdout; its beginning and end
    errors: str  # stderr; likewise
    cpu_s: float = 0.0  # 0 where it did not end by itself

    @property
    def problem(self) -> str:
        """What must not happen, in a word; "" where nothing of it did."""
        if self.timed_out or self.code == -signal.SIGXCPU:
            return "hang"
        if self.code < 0:
            return f"signal {-self.code}"
        if "MemoryError" in self.errors or "not enough memory" in self.errors:
            return "memory"
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
        if not module.name.endswith(_NOT_IMPORTED):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)


def run_verb(words: Sequence[str], limit_s: float = 30.0) -> VerbRun:
    """Runs `ncclscope WORDS` in a child."""
    return run_verbs([words], VerbLimits(limit_s))[0]


def run_verbs(verbs: Sequence[Sequence[str]], limits: VerbLimits) -> list[VerbRun]:
    """Runs `ncclscope WORDS` for each of them in one child; in another one after a crash or a
    verb that took longer than its time.
    """
    runs: list[VerbRun] = []
    while len(runs) < len(verbs):
        runs += _run_in_child(verbs[len(runs) :], limits)
    return runs


def _run_in_child(verbs: Sequence[Sequence[str]], limits: VerbLimits) -> list[VerbRun]:
    """The runs up to the first one that ended the child."""
    files = [(os.memfd_create("out"), os.memfd_create("err")) for _ in verbs]
    answers, ends = os.pipe()
    child = os.fork()
    if child == 0:
        _run_each(verbs, files, ends, limits)
    os.close(ends)
    runs: list[VerbRun] = []
    try:
        for words, (out, err) in zip(verbs, files, strict=True):
            began = time.monotonic()
            answer = _answer(answers, limits.wall_s)
            took_s, timed_out = time.monotonic() - began, answer is None
            if answer:
                code, peak, cpu_s = _ENDED.unpack(answer)
            else:
                code, peak, cpu_s = *_end(child), 0.0
            runs.append(
                VerbRun(tuple(words), code, timed_out, took_s, peak, _text(out), _text(err), cpu_s)
            )
            if not answer:
                return runs
        os.waitpid(child, 0)
        return runs
    finally:
        os.close(answers)
        for pair in files:
            for file in pair:
                os.close(file)


def _answer(pipe: int, limit_s: float) -> bytes | None:
    """What the child says of a verb that ended; b"" where the child did, None where time is up."""
    ready = select.select([pipe], [], [], limit_s)[0]
    return os.read(pipe, _ENDED.size) if ready else None


def _end(child: int) -> tuple[int, int]:
    """Ends a child and all of its own; its exit code, and the most memory it had."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_maxrss << 10


def _text(file: int) -> str:
    """The beginning and the end of what a verb printed."""
    size = os.fstat(file).st_size
    data = os.pread(file, _KEPT_BYTES, 0)
    if size > _KEPT_BYTES:
        data += b"\n" + os.pread(file, _KEPT_BYTES, max(size - _KEPT_BYTES, _KEPT_BYTES))
    return data.decode(errors="ignore")


def _run_each(
    verbs: Sequence[Sequence[str]],
    files: Sequence[tuple[int, int]],
    ends: int,
    limits: VerbLimits,
) -> None:
    """Runs the verbs and ends this process."""
    try:
        os.setpgid(0, 0)
        _set_limits(limits)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for words, (out, err) in zip(verbs, files, strict=True):
            os.dup2(out, 1)
            os.dup2(err, 2)
            sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
            sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
            with contextlib.suppress(OSError):  # the peak of this verb, not of those before it
                Path("/proc/self/clear_refs").write_text("5")
            used_s = _cpu_s()
            soft = int(used_s + limits.cpu_s) + 1
            resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))
            code = _run_verb(words)
            sys.stdout.flush()
            sys.stderr.flush()
            os.write(ends, _ENDED.pack(code, _peak_bytes(), _cpu_s() - used_s))
    finally:
        os._exit(0)


def _peak_bytes() -> int:
    """The most memory that this process has had, since it was last reset."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _set_limits(limits: VerbLimits) -> None:
    ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)
    resource.setrlimit(resource.RLIMIT_AS, (limits.address_space, limits.address_space))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))


def _run_verb(words: Sequence[str]) -> int:
    try:
        return main(list(words))
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        return 1


def errors_of(*words: str | Path, code: int = 2) -> str:
    """What a verb prints on stderr; it must end with this code, and well."""
    run = run_verb([str(word) for word in words], 60)
    assert run.code == code, run
    assert not run.problem, run
    return run.errors
