"""`ncclscope run`."""

import argparse
import os
import sys
from pathlib import Path

from ncclscope.capture.salvage import salvage
from ncclscope.capture.tally import ProcessTally, tally_capture
from ncclscope.cli.recording import add_recording_arguments, settings_of
from ncclscope.errors import UsageError
from ncclscope.launch.child import run_command
from ncclscope.launch.command import hand_on_variables
from ncclscope.launch.environment import rank_of, reachable_plugin, recording_variables
from ncclscope.native import plugin_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The recording options and the command."""
    add_recording_arguments(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="no summary at the end")
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="-- COMMAND …",
        help="torchrun, mpirun, srun, …",
    )


def _size(count: int) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count //= 1000
    return f"{count} GB"


def summary_lines(capture: Path, tallies: list[ProcessTally]) -> list[str]:
    """What was recorded, in a few lines, and what to do next."""
    if not tallies:
        return [
            "ncclscope: nothing recorded: no NCCL communicator was created, or its NCCL did not "
            "load the plugin",
            "           next: with NCCL_DEBUG=INFO, NCCL says what it did with the plugin",
        ]
    calls, events = sum(t.calls for t in tallies), sum(t.events for t in tallies)
    dropped, killed = sum(t.dropped for t in tallies), sum(not t.ended for t in tallies)
    plural = "" if len(tallies) == 1 else "es"
    ends = f", {killed} of them killed or still running" if killed else ""
    return [
        f"ncclscope: {len(tallies)} process{plural}{ends}; {calls:,} calls, {events:,} events, "
        f"{dropped:,} dropped, {_size(sum(t.bytes for t in tallies))} in {capture}",
        f"           next: ncclscope dump {capture}",
    ]


def run(arguments: argparse.Namespace) -> int:
    """Runs the command and returns its exit code; rank 0 alone, or whoever starts the ranks, sums
    up.
    """
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise UsageError("nothing to run", "Give a command: ncclscope run -- torchrun train.py")
    settings = settings_of(arguments)
    variables = recording_variables(settings, reachable_plugin(plugin_path(), settings.directory))
    other = os.environ.get("NCCL_PROFILER_PLUGIN")
    if other and other != variables["NCCL_PROFILER_PLUGIN"]:
        print(f"ncclscope: takes the place of NCCL_PROFILER_PLUGIN={other}", file=sys.stderr)
    code = run_command(hand_on_variables(command, variables), {**os.environ, **variables})
    salvage(settings.directory)
    if rank_of(os.environ) in (None, 0) and not arguments.quiet:
        print(
            "\n".join(summary_lines(settings.directory, tally_capture(settings.directory))),
            file=sys.stderr,
        )
    return code
