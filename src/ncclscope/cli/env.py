"""`ncclscope env`."""

import argparse
import os
import shlex

from ncclscope.cli.messages import print_message
from ncclscope.cli.recording_options import settings_of
from ncclscope.launch.environment import (
    leave_nvtx_to_other,
    reachable_plugin,
    recording_variables,
)
from ncclscope.native import plugin_path


def run(arguments: argparse.Namespace) -> int:
    """Prints a shell's `export` lines."""
    settings = settings_of(arguments, expand=True)
    plugin = reachable_plugin(plugin_path(), settings.directory)
    settings, sentence = leave_nvtx_to_other(settings, os.environ, plugin)
    if sentence:
        print_message(sentence)
    for name, value in recording_variables(settings, plugin).items():
        print(f"export {name}={shlex.quote(value)}")
    return 0
