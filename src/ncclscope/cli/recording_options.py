"""The settings that options of `run`, `env` and `overhead` describe."""

import argparse
import os
import re
from pathlib import Path

from ncclscope.errors import UsageError
from ncclscope.launch.environment import Settings, default_capture_name, without_placeholders
from ncclscope.launch.setting_checks import check_settings, check_variables

MOST_KERNEL_STEPS = 100  # whose kernels are taken at a time; ncclscope_kernels.py has it, too


def settings_of(arguments: argparse.Namespace, expand: bool = False) -> Settings:
    """The settings that the arguments describe, with the capture's absolute path. UsageError where
    they, or the recorder's variables in the environment, are not what the recorder understands.

    With `expand`, the plugin expands %h, %p and %r in the name.
    """
    name = arguments.output or default_capture_name(os.environ)
    pattern, here = None, _current_directory(name)
    if arguments.output and expand:
        pattern = os.path.normpath(os.path.join(without_placeholders(here), name))
    settings = Settings(
        directory=Path(os.path.normpath(here / name)),
        pattern=pattern,
        mode=arguments.mode,
        events=arguments.events,
        arena=arguments.arena,
        ring=arguments.ring,
        chain=arguments.chain,
        disk_limit=arguments.disk_limit,
        gpu_timing=arguments.gpu_timing,
        nvtx=arguments.nvtx,
        torch=arguments.torch,
        kernels_at=_kernels_at(arguments.kernels_at),
    )
    check_settings(settings)
    check_variables(os.environ)
    return settings


def _current_directory(name: str) -> Path:
    """What a name is relative to; / where that does not matter."""
    try:
        return Path("/") if os.path.isabs(name) else Path.cwd()
    except FileNotFoundError:
        raise UsageError(
            "the current directory was deleted", "Go to another one, or give -o a whole path"
        ) from None


def _kernels_at(text: str | None) -> str | None:
    """The argument of --kernels-at, checked: a wrong one would be noticed by no one but the job."""
    match = re.fullmatch(r"\d{1,9}(?::(\d{1,3}))?", text or "0")
    if not match or not 1 <= int(match[1] or 1) <= MOST_KERNEL_STEPS:
        raise UsageError(
            f"cannot take kernels at {text}",
            f"Give a step, or a step and how many (at most {MOST_KERNEL_STEPS}): 100 or 100:5",
        )
    return text
