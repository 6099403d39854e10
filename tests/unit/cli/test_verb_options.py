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


# What a verb must not import before it needs it: decoding where a saved model may be current,
# pages and findings for a report on a terminal.
_DECODING = ("ncclscope.model.decode_and_join", "ncclscope.model.process.decoded_process")
_LATE_IMPORTS = {
    "status": (*_DECODING, "duckdb", "multiprocessing", "ncclscope.model.align"),
    "diagnose": (*_DECODING, "duckdb", "ncclscope.ingest.nccl_log"),
    "report": (*_DECODING, "ncclscope.diagnose", "ncclscope.report.html", "ncclscope.ingest.files"),
}


def test_verbs_that_read_a_saved_model_import_what_they_use() -> None:
    code = (
        "import importlib, os, sys\n"
        f"for verb, late in {_LATE_IMPORTS}.items():\n"
        "    if os.fork() == 0:\n"
        "        importlib.import_module('ncclscope.cli.' + verb)\n"
        "        print(verb, *set(late) & set(sys.modules), flush=True)\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split("\n") == [*_LATE_IMPORTS, ""]


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


# One thing, one spelling: how help calls its value, and the verbs that take it.
_TIMES = {"report", "export", "timeline", "diagnose", "compare", "whatif"}
_SELECTING = {
    "--rank": ("RANKS", {"report", "export", "timeline", "diagnose", "dump", "ctl"}),
    "--comm": ("NAME", {"report", "export", "timeline", "diagnose", "compare"}),
    "--op": ("NAME", {"report", "export", "timeline", "compare"}),
    "--since": ("TIME", _TIMES),
    "--until": ("TIME", _TIMES),
    "--last": ("LENGTH", _TIMES),
}
# The same word where it means something else, and why.
_OTHERWISE = {
    ("bench", "--op"): "nccl-tests' option for reductions",
    ("history", "--comm"): "a role, over many jobs",
    ("history", "--last"): "jobs, not times",
    ("whatif", "--comm"): "a change: NAME at SPEED",
}


@pytest.mark.parametrize("spelling", _SELECTING)
def test_one_spelling_for_one_thing_over_all_verbs(spelling: str) -> None:
    value, verbs = _SELECTING[spelling]
    taking = {
        verb.name: option.value
        for verb in all_verbs()
        for option in verb.options
        if spelling in option.spellings and (verb.name, spelling) not in _OTHERWISE
    }
    assert taking == dict.fromkeys(verbs, value)
