"""`ncclscope plugin-path`."""

import argparse

from ncclscope.native import plugin_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds nothing."""


def run(arguments: argparse.Namespace) -> int:
    """Prints the plugin's path."""
    print(plugin_path())
    return 0
