"""What every verb takes, as data: completion scripts and man pages are made of it."""

import argparse
from dataclasses import dataclass

from ncclscope.cli import COMMANDS, verb_parser


@dataclass(frozen=True, slots=True)
class Option:
    """An option, or an argument without a name."""

    spellings: tuple[str, ...]  # none: an argument
    value: str  # how help calls the value; "" for an option without one
    choices: tuple[str, ...]
    help: str
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb with its options."""

    name: str
    summary: str
    usage: str
    options: tuple[Option, ...]


def all_verbs() -> tuple[Verb, ...]:
    """All verbs, in the order of `COMMANDS`."""
    return tuple(_verb(name, summary) for name, summary in COMMANDS.items())


def _verb(name: str, summary: str) -> Verb:
    parser = verb_parser(name)
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    options = [
        _option(parser, action) for action in parser._actions if action.help != argparse.SUPPRESS
    ]
    return Verb(name, summary, usage, tuple(options))


def _option(parser: argparse.ArgumentParser, action: argparse.Action) -> Option:
    formatter = parser._get_formatter()
    takes_value = action.nargs != 0
    value = ""
    if takes_value and action.option_strings:
        value = formatter._format_args(action, action.dest.upper())
    elif takes_value:
        value = str(action.metavar or action.dest)
    return Option(
        tuple(action.option_strings),
        value,
        tuple(map(str, action.choices or ())),
        " ".join(formatter._expand_help(action).split()) if action.help else "",
        isinstance(action, argparse._AppendAction),
    )
