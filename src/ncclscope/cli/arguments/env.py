"""The arguments of `ncclscope env`."""

import argparse

from ncclscope.cli.arguments.recording import add_recording_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the recording options."""
    add_recording_arguments(parser, "; the plugin replaces %%h, %%p and %%r")
