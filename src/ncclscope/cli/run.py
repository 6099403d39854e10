"""`ncclscope run`."""

import argparse
import os
from pathlib import Path

from ncclscope.cli.messages import print_message
from ncclscope.cli.recording_options import settings_of
from ncclscope.cli.system_options import check_system
from ncclscope.errors import UsageError
from ncclscope.humanize import plural
from ncclscope.launch.child import exit_code_kept, run_command
from ncclscope.launch.command import pass_on_variables
from ncclscope.launch.environment import (
    Settings,
    debug_variables,
    event_mask,
    leave_nvtx_to_other,
    make_capture,
    placeholders_in,
    reachable_plugin,
    recording_variables,
    why_not_writable,
)
from ncclscope.launch.timing_policy import with_variables
from ncclscope.launchers import global_rank
from ncclscope.native import plugin_path
from ncclscope.nccl.events import GPU_TIMING_EVENTS
from ncclscope.nccl.gpu_timing import kernel_sentence
from ncclscope.system.sampler_process import start_sampler, stop_sampler


def _refuse_placeholders(name: str) -> None:
    """Raises if a name would differ between ranks: `run` summarizes and salvages one capture."""
    signs = placeholders_in(name)
    if signs:
        raise UsageError(
            f"cannot record into {name}: {', '.join(signs)} would make several captures of one run",
            "Give -o a plain name; for a capture per host or process use `ncclscope env`",
        )


def _variables(arguments: argparse.Namespace, settings: Settings) -> dict[str, str]:
    """The variables to add to the job's environment; says which of the user's they replace."""
    plugin = reachable_plugin(plugin_path(), settings.directory)
    settings, sentence = leave_nvtx_to_other(settings, os.environ, plugin)
    if sentence:
        print_message(sentence)
    variables = recording_variables(settings, plugin)
    other = os.environ.get("NCCL_PROFILER_PLUGIN")
    if other and other != variables["NCCL_PROFILER_PLUGIN"]:
        is_library = other.lower() != "none" and not "STATIC_PLUGIN".startswith(other.upper())
        both = f" (--chain {other} keeps both)" if is_library and not settings.chain else ""
        print_message(f"ncclscope: takes the place of NCCL_PROFILER_PLUGIN={other}{both}")
    if arguments.nccl_debug:
        added, set_by_user = debug_variables(arguments.nccl_debug, settings.directory, os.environ)
        for name in set_by_user:
            print_message(f"ncclscope: {name} stays as you set it")
        make_capture(settings.directory)  # NCCL does not create it
        variables |= added
    return variables


def _earlier_processes(capture: Path) -> frozenset[str]:
    """Process folders that earlier runs left in the capture. A line names their number, and the
    summary leaves them out.
    """
    if global_rank(os.environ) is not None or not capture.is_dir():
        return frozenset()  # in front of a single rank, they are those of other ranks
    from ncclscope.capture.housekeeping import process_folders

    folders = frozenset(folder.name for folder in process_folders(capture))
    if folders:
        some = plural(len(folders), "process", "processes")
        print_message(
            f"ncclscope: {capture} holds {some} of an earlier run already; this one becomes "
            "another attempt beside it (-o DIR gives it a capture of its own)",
        )
    return folders


def _warn_if_not_writable(directory: Path) -> None:
    """Warns before the job starts if this host cannot write into the capture. The job runs in any
    case: other hosts may be able to write there.
    """
    cause = why_not_writable(directory)
    if cause and global_rank(os.environ) in (None, 0):
        print_message(
            f"ncclscope: cannot record into {directory} from this host: {cause}. "
            "Choose another directory with -o",
        )


def _say_cost(settings: Settings, quiet: bool) -> None:
    """Says what GPU times of every operation cost, before the job starts."""
    timed = event_mask(with_variables(settings, os.environ)) & GPU_TIMING_EVENTS
    if timed and not quiet and global_rank(os.environ) in (None, 0):
        print_message(f"ncclscope: {kernel_sentence()}")


def run(arguments: argparse.Namespace) -> int:
    """Runs the command and returns its exit code. Prints a summary in front of rank 0 or of a
    launcher.
    """
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command or not command[0]:
        raise UsageError("nothing to run", "Give a command: ncclscope run -- torchrun train.py")
    _refuse_placeholders(arguments.output or "")
    check_system(arguments)
    settings = settings_of(arguments)
    _warn_if_not_writable(settings.directory)
    earlier = _earlier_processes(settings.directory)
    variables = _variables(arguments, settings)
    _say_cost(settings, arguments.quiet)
    sampler, sampled = None, ""
    if arguments.system:
        directory, root = settings.directory, arguments.system_root
        sampler = start_sampler(directory, arguments.system_interval, root)
    try:
        code = run_command(pass_on_variables(command, variables), {**os.environ, **variables})
    finally:
        sampled = stop_sampler(sampler)
    with exit_code_kept(code):
        # Imported here, these do not delay the start of the job.
        from ncclscope.capture.salvage import salvage
        from ncclscope.cli.run_summary import summary_lines

        salvage(settings.directory)
        if global_rank(os.environ) in (None, 0) and not arguments.quiet:
            print_message(*summary_lines(settings.directory, earlier, sampled))
    return code
