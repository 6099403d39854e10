"""Examples of --help: every verb has some, and they are right."""

import argparse
import shlex

import pytest

from ncclscope.cli import COMMANDS, GROUPS, arguments_module, main
from ncclscope.cli.examples import EXAMPLES


def test_help_lists_every_verb_once_in_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    grouped = [verb for verbs in GROUPS.values() for verb in verbs]
    assert sorted(grouped) == sorted(COMMANDS)
    with pytest.raises(SystemExit):
        main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[:-1])) <= 80
    for verb, summary in COMMANDS.items():
        assert sum(line.split() == [verb, *summary.split()] for line in lines) == 1


def test_every_verb_has_examples() -> None:
    assert EXAMPLES.keys() == COMMANDS.keys()


@pytest.mark.parametrize("verb", COMMANDS)
def test_examples_are_understood(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = arguments_module(verb)
    for example in EXAMPLES[verb]:
        assert f"ncclscope {verb}" in example
        words = shlex.split(example.partition(f"ncclscope {verb}")[2].rstrip(")"))
        parser = argparse.ArgumentParser(exit_on_error=False)
        module.add_arguments(parser)
        parser.parse_args(getattr(module, "preprocess_argv", list)(words))
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    printed = capsys.readouterr().out
    assert all(f"\n  {example}\n" in printed for example in EXAMPLES[verb])
