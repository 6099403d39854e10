"""Runs the command once in one variant: to its end, or for a window of time."""

import os
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
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
from ncclscope.overhead.event_steps import partial_masks
from ncclscope.overhead.progress import (
    CallProgress,
    ReadProgress,
    capture_reader,
    empty_plugin_reader,
)
from ncclscope.overhead.statistics import step_variant

_POLL_S = 0.05
_STOP_S = 10.0  # a command that has not ended this long after SIGTERM is killed
_LONGER_S = 10.0  # the most by which a window is extended until there are enough counts
_SIMULATED = b"simulated by ncclscope"
_WARN_AFTER_S = 60.0  # if a command has made no call by then
_LAST_LINES = 15
_SKIPPED = 0.2  # the share of a window that is skipped, because the start is not like the rest
VARIANTS = ("none", "none again", "empty", "ours")
WINDOW_VARIANTS = ("empty", "empty again", "ours")
_STARTS_ELSEWHERE = ("srun", "aprun", "flux", "kubectl", "ssh")  # their ranks are no descendants


@dataclass(frozen=True, slots=True)
class OverheadTrial:
    """What to run, and what to measure."""

    command: tuple[str, ...]
    settings: Settings  # of the recording; its directory has the trials' temporary files
    plugin: Path  # the recorder, or another plugin that is measured in its place
    seconds: float | None = None  # the window, for commands that do not end
    timeout_s: float = 3600.0
    metric: re.Pattern[str] | None = None  # a number that the command prints
    metric_is_rate: bool = True
    plugin_is_ours: bool = True

    @property
    def counts_calls(self) -> bool:
        """Whether the cost is the time for a call, by calls that a plugin counts in a window."""
        return bool(self.seconds) and self.metric is None

    @property
    def step_masks(self) -> dict[str, int]:
        """The events of the empty plugin after each step but the last, by variant."""
        masks = partial_masks(event_mask(self.settings), self.counts_calls)
        return {step_variant(step): mask for step, mask in masks.items()}

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants to run. Without a plugin, calls in a window are not counted."""
        return (*(WINDOW_VARIANTS if self.counts_calls else VARIANTS), *self.step_masks)

    @property
    def cpu_is_known(self) -> bool:
        """Whether the ranks are descendants of the command, so that their CPU time is known."""
        return Path(self.command[0]).name not in _STARTS_ELSEWHERE

    @property
    def measures(self) -> str:
        """What a cost is, for the table."""
        if self.metric is not None:
            return f"what the command prints ({self.metric.pattern})"
        return "time for a call, by calls in a window" if self.seconds else "wall time"

    @property
    def quantity(self) -> str:
        """The name of what is compared, besides CPU time."""
        if self.metric is not None:
            return "its own number"
        return "time for a call" if self.seconds else "wall time"


def variables_of(trial: OverheadTrial, variant: str, scratch: Path) -> dict[str, str]:
    """The environment variables of a variant."""
    if variant.startswith("none"):
        return {"NCCL_PROFILER_PLUGIN": "none"}
    if variant.startswith("empty"):
        return {
            "NCCL_PROFILER_PLUGIN": str(empty_plugin_path()),
            "NCCLSCOPE_EMPTY_EVENTS": hex(
                trial.step_masks.get(variant, event_mask(trial.settings))
            ),
            "NCCLSCOPE_EMPTY_COUNTS": str(scratch / "counts") if trial.seconds else "",
        }
    settings = replace(trial.settings, directory=scratch / "capture")
    return recording_variables(settings, trial.plugin)


def _progress_reader(trial: OverheadTrial, variant: str, scratch: Path) -> ReadProgress | None:
    if not trial.seconds:
        return None
    if variant.startswith("empty"):
        return empty_plugin_reader(scratch / "counts")
    return capture_reader(scratch / "capture") if variant == "ours" else None


@contextmanager
def _running_command(
    trial: OverheadTrial, variables: Mapping[str, str], output: Path
) -> Iterator["subprocess.Popen[bytes]"]:
    """The command, in a session of its own that is ended when the block is left."""
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
    """Ends the command's whole session: first by SIGTERM, then by SIGKILL."""
    for number, timeout_s in ((signal.SIGTERM, _STOP_S), (signal.SIGKILL, None)):
        if process.poll() is None or number == signal.SIGKILL:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            continue


def _last_lines(output: Path) -> str:
    text = output.read_bytes()[-8000:].decode(errors="replace")
    return "\n".join(printable(line) for line in text.splitlines()[-_LAST_LINES:])


def _trial_error(trial: OverheadTrial, variant: str, why: str, output: Path) -> NcclscopeError:
    lines = _last_lines(output)
    last_words = f". Its last words:\n{lines}" if lines else ""
    name = printable(trial.command[0])
    return NcclscopeError(f"cannot measure: {name} ({variant}) {why}{last_words}")


def _printed_cost(trial: OverheadTrial, variant: str, output: Path) -> float:
    """The cost from the last number that the command printed."""
    assert trial.metric is not None
    numbers = trial.metric.findall(output.read_bytes().decode(errors="replace"))
    try:
        value = float(numbers[-1].replace(",", ""))
    except (IndexError, ValueError):
        why = f"printed no number that fits {trial.metric.pattern}"
        raise _trial_error(trial, variant, why, output) from None
    if value <= 0:
        raise _trial_error(trial, variant, f"printed {value:g}, which cannot be compared", output)
    return 1 / value if trial.metric_is_rate else value


def _ends_within(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Waits for a process; returns whether it ended. Popen.wait would look only every 50 ms."""
    ended = os.pidfd_open(process.pid)
    try:
        return bool(select.select([ended], [], [], seconds)[0])
    finally:
        os.close(ended)


def _check_recorded(trial: OverheadTrial, variant: str, scratch: Path, output: Path) -> None:
    """Raises if no NCCL call of the command was recorded: then its cost says nothing."""
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
        raise _trial_error(trial, variant, why, output)


def _cost_to_the_end(trial: OverheadTrial, variant: str, scratch: Path) -> float:
    output = scratch / "output"
    variables = variables_of(trial, variant, scratch)
    began = time.monotonic()
    with _running_command(trial, variables, output) as process:
        if not _ends_within(process, trial.timeout_s):
            why = f"did not end within {trial.timeout_s:g} s; --seconds measures what runs for ever"
            raise _trial_error(trial, variant, why, output)
        spent_s = time.monotonic() - began
        code = process.wait()
    if code:
        raise _trial_error(trial, variant, f"ended with exit code {code}", output)
    _check_recorded(trial, variant, scratch, output)
    return _printed_cost(trial, variant, output) if trial.metric else spent_s


def _cost_in_window(trial: OverheadTrial, variant: str, scratch: Path) -> float:
    """The cost of a call, or what the command printed, in a window of `trial.seconds`."""
    assert trial.seconds is not None
    output = scratch / "output"
    (scratch / "counts").mkdir()
    variables = variables_of(trial, variant, scratch)
    read, progress = _progress_reader(trial, variant, scratch), CallProgress()
    with _running_command(trial, variables, output) as process:
        if read is None:
            _ends_within(process, trial.seconds)
        else:
            _wait_for_first_calls(
                trial, variant, process, partial(read, progress), progress, output
            )
            _wait_for_window(trial.seconds, process, partial(read, progress), progress)
        code = process.poll()
    if trial.metric is not None:
        _check_recorded(trial, variant, scratch, output)
        return _printed_cost(trial, variant, output)
    rate = progress.rate(trial.seconds * _SKIPPED)
    if rate is None:
        why = f"ended with exit code {code} after" if code is not None else "made"
        why += " too few NCCL calls in the window; a longer one with --seconds may do"
        raise _trial_error(trial, variant, why, output)
    return 1 / rate


def _wait_for_first_calls(
    trial: OverheadTrial,
    variant: str,
    process: "subprocess.Popen[bytes]",
    read: Callable[[], None],
    progress: CallProgress,
    output: Path,
) -> None:
    """Waits until every process has made a call: the window does not contain the start-up."""
    until = time.monotonic() + trial.timeout_s
    warn_at = time.monotonic() + _WARN_AFTER_S
    while process.poll() is None and progress.began is None:
        time.sleep(_POLL_S)
        read()
        now = time.monotonic()
        if now > warn_at and progress.began is None:
            warn_at = until
            print(
                f"ncclscope: {variant}: no NCCL call in {_WARN_AFTER_S:g} s; it is waited for "
                f"until {trial.timeout_s:g} s are over (--timeout)",
                file=sys.stderr,
            )
        if now > until and progress.began is None:
            why = f"made no NCCL call within {trial.timeout_s:g} s"
            raise _trial_error(trial, variant, why, output)


def _wait_for_window(
    seconds: float,
    process: "subprocess.Popen[bytes]",
    read: Callable[[], None],
    progress: CallProgress,
) -> None:
    """Waits for the window, and longer until there are enough counts: they come once a second, on a
    busy machine less often.
    """
    end = time.monotonic() + seconds
    while process.poll() is None:
        time.sleep(_POLL_S)
        read()
        now = time.monotonic()
        enough = progress.rate(seconds * _SKIPPED) is not None
        if now >= end + _LONGER_S or (now >= end and enough):
            return


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What one run of the command cost."""

    cost: float  # seconds, or seconds for a unit of its work
    cpu_s: float  # CPU time of the command and its descendants, in the same unit in a window
    simulated: bool  # NCCL was simulated: the cost means nothing


def _is_simulated(scratch: Path) -> bool:
    """Whether NCCL was simulated, from the job's output, or from its capture."""
    if _SIMULATED in (scratch / "output").read_bytes():
        return True
    capture = scratch / "capture"
    folders = process_folders(capture) if capture.is_dir() else []
    return any("simulation" in identity_of(folder) for folder in folders)


def _cpu_of_children_s() -> float:
    """CPU time of all children that have ended, and of descendants that they waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run_once(trial: OverheadTrial, variant: str) -> TrialResult:
    """Runs the command in one variant; removes everything that it leaves behind."""
    try:
        scratch = Path(tempfile.mkdtemp(prefix="ncclscope-overhead-", dir=trial.settings.directory))
    except OSError as error:
        message = f"cannot write to {trial.settings.directory}: {error.strerror}"
        raise UsageError(message, "Choose another directory with -o") from None
    try:
        measure = _cost_in_window if trial.seconds else _cost_to_the_end
        began_s, cpu_before_s = time.monotonic(), _cpu_of_children_s()
        cost = measure(trial, variant, scratch)
        cpu_s = _cpu_of_children_s() - cpu_before_s
        if trial.seconds:  # runs differ in the work that they got done
            cpu_s *= cost / (time.monotonic() - began_s)
        return TrialResult(cost, cpu_s, _is_simulated(scratch))
    finally:
        if variant == "ours":  # otherwise a killed process's arena stays in memory
            with suppress(NcclscopeError, OSError):
                salvage(scratch / "capture")
        shutil.rmtree(scratch, ignore_errors=True)


def command_words(words: Sequence[str]) -> tuple[str, ...]:
    """The command after `--`."""
    command = tuple(words[1:] if words[:1] == ["--"] else words)
    if not command or not command[0]:
        message = "nothing to run"
        raise UsageError(message, "Give a command: ncclscope overhead -- torchrun train.py")
    return command
