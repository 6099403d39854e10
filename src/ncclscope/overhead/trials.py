"""Running the command once, in one variant: to its end, or for a window of time."""

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ncclscope.capture.contents import contents_of_process
from ncclscope.capture.housekeeping import identity_of, process_folders
from ncclscope.capture.salvage import salvage
from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.humanize import printable
from ncclscope.launch.child import CommandNotStartedError
from ncclscope.launch.command import pass_on_variables
from ncclscope.launch.environment import Settings, event_mask, recording_variables
from ncclscope.native import empty_plugin_path
from ncclscope.overhead.progress import Counts, Look, look_at_capture, look_at_empty

_POLL_S = 0.05
_PATIENCE_S = 10.0  # for a stopped command to end by itself
_LONGER_S = 10.0  # for a window to last longer than asked for, until there are counts enough
_SIMULATED = b"simulated by ncclscope"
_TELL_AFTER_S = 60.0  # that a command has made no call yet
_LAST_LINES = 15
_SKIPPED = 0.2  # of a window: the start is not like the rest
VARIANTS = ("none", "none again", "empty", "ours")
WINDOW_VARIANTS = ("empty", "empty again", "ours")


@dataclass(frozen=True, slots=True)
class Trial:
    """What is run, and what is measured of it."""

    command: tuple[str, ...]
    settings: Settings  # of the recording; its directory holds what the trials leave for a moment
    plugin: Path  # ours, or one that is measured in its place
    seconds: float | None = None  # a window, for commands that do not end
    timeout_s: float = 3600.0
    metric: re.Pattern[str] | None = None  # a number that the command prints
    metric_is_rate: bool = True
    plugin_is_ours: bool = True

    @property
    def variants(self) -> tuple[str, ...]:
        """Without a plugin nobody counts: a window needs a number that the command prints."""
        return WINDOW_VARIANTS if self.seconds and self.metric is None else VARIANTS

    @property
    def measures(self) -> str:
        """What a cost is, in words."""
        if self.metric is not None:
            return f"what the command prints ({self.metric.pattern})"
        return "time for a call, by calls in a window" if self.seconds else "wall time"


def variables_of(trial: Trial, variant: str, scratch: Path) -> dict[str, str]:
    """The environment of a variant."""
    if variant.startswith("none"):
        return {"NCCL_PROFILER_PLUGIN": "none"}
    if variant.startswith("empty"):
        return {
            "NCCL_PROFILER_PLUGIN": str(empty_plugin_path()),
            "NCCLSCOPE_EMPTY_EVENTS": hex(event_mask(trial.settings)),
            "NCCLSCOPE_EMPTY_COUNTS": str(scratch / "counts") if trial.seconds else "",
        }
    recorded = Settings(
        scratch / "capture",
        trial.settings.mode,
        trial.settings.events,
        trial.settings.arena,
        trial.settings.ring,
        trial.settings.chain,
        trial.settings.disk_limit,
        trial.settings.gpu_timing,
    )
    return recording_variables(recorded, trial.plugin)


def _look_of(trial: Trial, variant: str, scratch: Path) -> Look | None:
    if not trial.seconds:
        return None
    if variant.startswith("empty"):
        return look_at_empty(scratch / "counts")
    return look_at_capture(scratch / "capture") if variant == "ours" else None


@contextmanager
def _started(
    trial: Trial, variables: Mapping[str, str], output: Path
) -> Iterator["subprocess.Popen[bytes]"]:
    """The command in a session of its own, gone at the end of the block."""
    command = pass_on_variables(trial.command, variables)
    with output.open("wb") as file:
        try:
            process = subprocess.Popen(
                command,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise CommandNotStartedError(command[0], error) from None
    try:
        yield process
    finally:
        stop(process)


def stop(process: "subprocess.Popen[bytes]") -> None:
    """Ends the command's whole session: first asked, then killed."""
    for number, patience_s in ((signal.SIGTERM, _PATIENCE_S), (signal.SIGKILL, None)):
        if process.poll() is None or number == signal.SIGKILL:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            continue


def _last_lines(output: Path) -> str:
    text = output.read_bytes()[-8000:].decode(errors="replace")
    return "\n".join(printable(line) for line in text.splitlines()[-_LAST_LINES:])


def _failed(trial: Trial, variant: str, why: str, output: Path) -> NcclscopeError:
    said = _last_lines(output)
    more = f". Its last words:\n{said}" if said else ""
    name = printable(trial.command[0])
    return NcclscopeError(f"cannot measure: {name} ({variant}) {why}{more}")


def _printed(trial: Trial, variant: str, output: Path) -> float:
    """The cost by the last number that the command printed."""
    assert trial.metric is not None
    found = trial.metric.findall(output.read_bytes().decode(errors="replace"))
    try:
        value = float(found[-1].replace(",", ""))
    except (IndexError, ValueError):
        why = f"printed no number that fits {trial.metric.pattern}"
        raise _failed(trial, variant, why, output) from None
    if value <= 0:
        raise _failed(trial, variant, f"printed {value:g}, which cannot be compared", output)
    return 1 / value if trial.metric_is_rate else value


def _ends_within(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Waits for the end and not a moment longer, where Popen.wait looks every 50 ms."""
    ended = os.pidfd_open(process.pid)
    try:
        return bool(select.select([ended], [], [], seconds)[0])
    finally:
        os.close(ended)


def _check_recorded(trial: Trial, variant: str, scratch: Path, output: Path) -> None:
    """A command that NCCL was not recorded of says nothing about recording, whatever it took."""
    if variant != "ours" or not trial.plugin_is_ours:
        return
    capture = scratch / "capture"
    folders = list(capture.iterdir()) if capture.is_dir() else []
    if not any(
        contents_of_process(folder).calls for folder in folders if (folder / "tally").exists()
    ):
        why = (
            "made no NCCL call that was recorded, so there is nothing to measure. "
            "`ncclscope doctor` says whether NCCL would load the plugin here"
        )
        raise _failed(trial, variant, why, output)


def _to_the_end(trial: Trial, variant: str, scratch: Path) -> float:
    output = scratch / "output"
    variables = variables_of(trial, variant, scratch)
    began = time.monotonic()
    with _started(trial, variables, output) as process:
        if not _ends_within(process, trial.timeout_s):
            why = f"did not end within {trial.timeout_s:g} s; --seconds measures what runs for ever"
            raise _failed(trial, variant, why, output)
        spent_s = time.monotonic() - began
        code = process.wait()
    if code:
        raise _failed(trial, variant, f"ended with exit code {code}", output)
    _check_recorded(trial, variant, scratch, output)
    return _printed(trial, variant, output) if trial.metric else spent_s


def _for_a_window(trial: Trial, variant: str, scratch: Path) -> float:
    """A window begins with the job's first calls, so that its start-up does not count."""
    assert trial.seconds is not None
    output = scratch / "output"
    (scratch / "counts").mkdir()
    variables = variables_of(trial, variant, scratch)
    look, counts = _look_of(trial, variant, scratch), Counts()
    until = time.monotonic() + trial.timeout_s
    tell_at = time.monotonic() + _TELL_AFTER_S
    with _started(trial, variables, output) as process:
        end = time.monotonic() + trial.seconds if look is None else None
        while process.poll() is None and (end is None or time.monotonic() < end):
            time.sleep(_POLL_S)
            if look is not None:
                look(counts)
                if end is None and counts.began is not None:
                    end = time.monotonic() + trial.seconds
                    until = end + _LONGER_S
                elif end is not None and time.monotonic() >= end < until:
                    # counts come once a second, on a busy machine less often
                    enough = counts.rate(trial.seconds * _SKIPPED) is not None
                    end = end if enough else time.monotonic() + _POLL_S
            if end is None and time.monotonic() > tell_at:
                tell_at = until
                print(
                    f"ncclscope: {variant}: no NCCL call in {_TELL_AFTER_S:g} s; it is waited for "
                    f"until {trial.timeout_s:g} s are over (--timeout)",
                    file=sys.stderr,
                )
            if end is None and time.monotonic() > until:
                why = f"made no NCCL call within {trial.timeout_s:g} s"
                raise _failed(trial, variant, why, output)
        code = process.poll()
    if trial.metric is not None:
        _check_recorded(trial, variant, scratch, output)
        return _printed(trial, variant, output)
    rate = counts.rate(trial.seconds * _SKIPPED)
    if rate is None:
        why = f"ended with exit code {code} after" if code is not None else "made"
        why += " too few NCCL calls in the window; a longer one with --seconds may do"
        raise _failed(trial, variant, why, output)
    return 1 / rate


@dataclass(frozen=True, slots=True)
class Ran:
    """What one run of the command cost: seconds, or seconds for a unit of its work."""

    cost: float
    simulated: bool  # NCCL was: nothing was measured


def _simulated(scratch: Path) -> bool:
    """By what the simulated NCCL says in a job's output, or in a capture where that is hidden."""
    if _SIMULATED in (scratch / "output").read_bytes():
        return True
    capture = scratch / "capture"
    folders = process_folders(capture) if capture.is_dir() else []
    return any("simulation" in identity_of(folder) for folder in folders)


def run_once(trial: Trial, variant: str) -> Ran:
    """Runs the command in one variant."""
    try:
        scratch = Path(tempfile.mkdtemp(prefix="ncclscope-overhead-", dir=trial.settings.directory))
    except OSError as error:
        message = f"cannot write to {trial.settings.directory}: {error.strerror}"
        raise UsageError(message, "Choose another directory with -o") from None
    try:
        how = _for_a_window if trial.seconds else _to_the_end
        cost = how(trial, variant, scratch)
        return Ran(cost, _simulated(scratch))
    finally:
        if variant == "ours":  # a killed process's arena would stay in memory
            with suppress(NcclscopeError, OSError):
                salvage(scratch / "capture")
        shutil.rmtree(scratch, ignore_errors=True)


def command_of(words: Sequence[str]) -> tuple[str, ...]:
    """The command behind `--`."""
    found = tuple(words[1:] if words[:1] == ["--"] else words)
    if not found:
        message = "nothing to run"
        raise UsageError(message, "Give a command: ncclscope overhead -- torchrun train.py")
    return found
