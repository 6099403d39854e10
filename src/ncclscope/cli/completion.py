"""`ncclscope completion`."""

import argparse

from ncclscope.cli.completion_scripts import SCRIPTS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the shell."""
    parser.add_argument("shell", choices=SCRIPTS, metavar="SHELL", help=f"{', '.join(SCRIPTS)}")


def run(arguments: argparse.Namespace) -> int:
    """Prints the shell's script."""
    # Late: this module is one of those that it lists.
    from ncclscope.cli.verb_options import all_verbs

    print(SCRIPTS[arguments.shell](all_verbs()), end="")
    return 0
