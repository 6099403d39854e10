"""What help, completion and man pages are made of."""

import subprocess
import sys

import pytest

from ncclscope.bench.operation_names import OPERATION_NAMES
from ncclscope.bench.operations import OPERATIONS
from ncclscope.cli import COMMANDS
from ncclscope.cli.verb_options import all_verbs
from tests.support.paths import ROOT

_HEAVY = ("numpy", "duckdb", "textual", "asyncio", "multiprocessing")


def test_parsers_of_all_verbs_need_the_standard_library_only() -> None:
    code = (
        "import sys; from ncclscope.cli.verb_options import all_verbs; all_verbs(); "
        f"print([name for name in {_HEAVY} if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert printed.stdout == "[]\n", printed.stderr


def test_help_imports_no_module_that_takes_long() -> None:
    """dataclasses alone take 15 ms, with what they import."""
    code = (
        "import sys; from ncclscope.cli import COMMANDS, verb_parser\n"
        "for verb in COMMANDS: verb_parser(verb).format_help()\n"
        "print(*sorted({'dataclasses', 'inspect', 'json', 'asyncio'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert ran.stdout.strip() == ""


def test_operations_that_bench_lists_are_those_it_measures() -> None:
    assert tuple(OPERATIONS) == OPERATION_NAMES


def test_options_have_their_choices_and_help() -> None:
    verbs = {verb.name: verb for verb in all_verbs()}
    assert list(verbs) == list(COMMANDS)
    mode = next(option for option in verbs["run"].options if "--mode" in option.spellings)
    assert mode.choices == ("profile", "trace", "full")
    assert mode.help.startswith("profile: counts")
    rank = next(option for option in verbs["report"].options if "--rank" in option.spellings)
    assert (rank.value, rank.repeats) == ("RANKS", True)
    capture = next(option for option in verbs["report"].options if not option.spellings)
    assert capture.value == "CAPTURE"


@pytest.mark.parametrize("verb", all_verbs(), ids=lambda verb: verb.name)
def test_no_help_text_has_places_that_were_not_filled(verb: object) -> None:
    assert "%(" not in repr(verb)
