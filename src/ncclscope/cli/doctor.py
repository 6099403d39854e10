"""`ncclscope doctor`."""

import argparse
import json
import os
import sys
import textwrap
from dataclasses import asdict

from ncclscope._version import __version__
from ncclscope.cli import suggested_commands
from ncclscope.cli.terminal import output_width, paint
from ncclscope.doctor import checks
from ncclscope.doctor.libraries import Library, candidates, mapped_by
from ncclscope.errors import UsageError
from ncclscope.json_answers import VERSION
from ncclscope.native import plugin_path
from ncclscope.nccl.releases import Release

_WIDEST = 120
_MARKS = {checks.FINE: "ok  ", checks.NOTE: "note", checks.PROBLEM: "FAIL"}


def _run_checks(pid: int | None) -> list[checks.Check]:
    plugin = plugin_path()
    if pid is None:
        libraries = candidates(os.environ)
    else:
        try:
            libraries = mapped_by(pid)
        except OSError as error:
            message = f"cannot look at process {pid}: {error.strerror}"
            raise UsageError(message, "Give the id of a running process of yours") from None
    timing = checks.check_gpu_timing_of(pid) if pid is not None else None
    return [
        checks.check_plugin_file(plugin),
        checks.check_recording(),
        checks.check_slot(os.environ, plugin),
        *checks.check_library(libraries),
        timing
        or checks.check_gpu_timing(os.environ, _first_release(libraries), checks.missing_driver()),
        checks.check_shared_memory(),
        checks.check_clock(),
        checks.check_gpu(),
    ]


def _first_release(libraries: list[Library]) -> Release | None:
    """The release of the library that is judged."""
    return libraries[0].release if libraries else None


def _conclusion(results: list[checks.Check]) -> tuple[str, str]:
    """What the checks mean together, and what to do next."""
    problems = [check for check in results if check.state == checks.PROBLEM]
    if problems:
        return "NCCL would not be recorded here", problems[0].remedy
    if not any(check.name == "interface" for check in results):
        return "ready, as far as can be seen without NCCL", suggested_commands.command("demo")
    return "ready", f"{suggested_commands.command('run')} -- COMMAND"


def _wrapped(text: str) -> list[str]:
    """The text in lines that fit beside the names; paths stay in one."""
    width = output_width(_WIDEST) - 23
    lines = textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)
    return lines if sys.stdout.isatty() else [text]


def run(arguments: argparse.Namespace) -> int:
    """Prints the checks and what they mean; the exit code is 1 if there is a problem."""
    results = _run_checks(arguments.pid)
    verdict, step = _conclusion(results)
    failed = any(check.state == checks.PROBLEM for check in results)
    if arguments.json:
        answer = {
            "version": VERSION,
            "ncclscope": __version__,
            "system": checks.python_line(),
            "ok": not failed,
            "verdict": verdict,
            "next": step,
            "checks": [asdict(check) for check in results],
        }
        print(json.dumps(answer, indent=2))
        return int(failed)
    print(f"ncclscope {__version__}, {checks.python_line()}\n")
    for check in results:
        lines = _wrapped(check.text) + (_wrapped(check.remedy) if check.remedy else [])
        print(paint(f"  {_MARKS[check.state]}  {check.name:<14} {lines[0]}"))
        for line in lines[1:]:
            print(f"  {'':<4}  {'':<14} {line}")
    print(f"\n{verdict}. Next: {step}")
    return int(failed)
