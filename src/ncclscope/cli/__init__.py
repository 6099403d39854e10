"""The command line. In: words. Out: an exit code; one module per verb."""

import argparse
import errno
import importlib
import keyword
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext

from ncclscope._version import __version__
from ncclscope.cli.examples import EXAMPLES
from ncclscope.cli.interrupts import INTERRUPTED, Interrupts, leave_at_once
from ncclscope.cli.messages import print_message
from ncclscope.cli.standard_streams import prepare_streams
from ncclscope.documentation import page
from ncclscope.errors import NcclscopeError, UsageError, is_out_of_memory
from ncclscope.humanize import printable

TYPE_CHECKING = False  # not typing's: see ncclscope/__init__.py
if TYPE_CHECKING:
    from typing import Any

# Verbs and their summaries. The module of a verb is cli.<verb>; it has run(arguments), which gives
# the exit code. add_arguments(parser) is in the same module, or in cli.arguments.<verb> if run
# needs more than that: `--help` must not wait for it. If preprocess_argv(words) is next to it, it
# changes the words of the command line before they are parsed.
COMMANDS = {
    "run": "run a command and record every NCCL call",
    "report": "summarize a capture: times, bandwidth and waiting, by group",
    "status": "show whether a job hangs, by which ranks, and what they do",
    "diagnose": "find hangs, stragglers, slow links and more, with evidence",
    "whatif": "predict the run without a late rank or a slow link",
    "compare": "compare two jobs: is one slower, how certainly, and what of it",
    "history": "keep sums of jobs: trends, late hosts, a job against equal ones",
    "top": "watch running jobs in the terminal: rates, late ranks, hangs",
    "serve": "expose metrics of running jobs to Prometheus or node_exporter",
    "dashboards": "write Prometheus rules and Grafana dashboards for `serve`",
    "ctl": "change what a running job records, without a restart",
    "dump": "print every recorded event",
    "timeline": "show every operation and callback over time, in the browser",
    "export": "export operations to Perfetto, Chrome, Parquet, CSV and others",
    "import": "convert files of Inspector, PyTorch, nsys and others to a capture",
    "bench": "benchmark NCCL call by call, with the options of nccl-tests",
    "overhead": "measure what recording adds to a command",
    "doctor": "check whether NCCL would be recorded here, and why not",
    "ls": "list captures with their size, job, ranks, mode and state",
    "prune": "delete captures by age and size",
    "pack": "pack a capture for a bug report, without private data",
    "decode": "turn logs of finished processes into smaller Parquet files",
    "salvage": "recover what dead processes left in shared memory",
    "demo": "record and report a simulated job with a late rank; no GPU needed",
    "env": "print the variables that switch recording on without `run`",
    "plugin-path": "print the plugin's path, for NCCL_PROFILER_PLUGIN",
    "completion": "print a script that completes verbs and options in a shell",
}
# How --help lists them: in the order in which one needs them.
GROUPS = {
    "record a job": ("run", "env", "plugin-path", "doctor", "demo"),
    "look at a running job": ("status", "top", "serve", "dashboards", "ctl"),
    "see what happened": ("report", "diagnose", "whatif", "compare", "history", "timeline", "dump"),
    "exchange data": ("export", "import"),
    "measure": ("bench", "overhead"),
    "keep captures": ("ls", "prune", "pack", "decode", "salvage"),
    "set up the shell": ("completion",),
}
# Exit codes, and those of verbs that have others.
_EXIT_CODES = "0 fine, 1 failed, 2 wrong usage"
_OTHER_EXIT_CODES = {
    "run": "the command's, 128 + n if signal n ended it, 126 or 127 if it cannot be run, "
    "2 wrong usage",
    "overhead": f"{_EXIT_CODES}, 126 or 127 the command cannot be run",
    "report": f"{_EXIT_CODES}, 5 incomplete (with --require-complete)",
    "status": "0 not hung, 4 hung, 1 failed, 2 wrong usage",
    "diagnose": f"{_EXIT_CODES}, 3 findings (with --fail-on)",
    "compare": f"{_EXIT_CODES}, 3 B is slower, 5 nothing was compared (with --gate)",
}


_OUT_OF_MEMORY = (
    "there is not enough memory. Choose a part: --last 10m, --rank, --comm; or raise "
    "NCCLSCOPE_MEMORY_LIMIT if it is set"
)
_ARRAYS = "ncclscope.arrays.library"
_CUT_FILE = "a file became shorter while it was read, and what was in it is missing. Run this again"


def _columns() -> int:
    """How wide help is, as shutil.get_terminal_size would say."""
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


class _Formatter(argparse.HelpFormatter):
    """As argparse's own, but examples keep their lines, and paths and addresses stay in one."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)  # given: argparse would import shutil

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        import textwrap  # late: `run` sits in front of every rank

        lines: list[str] = []
        for line in text.splitlines():
            kept = line.startswith(" ") or not line
            lines += [line] if kept else textwrap.wrap(
                line, width, break_on_hyphens=False, break_long_words=False
            )  # fmt: skip
        return "\n".join(indent + line for line in lines)


def _verbs_in_groups() -> str:
    """All verbs with their summaries, and where there is more."""
    lines = []
    for title, verbs in GROUPS.items():
        lines += [f"{title}:", *(f"  {verb:<11} {COMMANDS[verb]}" for verb in verbs), ""]
    lines.append("ncclscope VERB --help says more about a verb.")
    return "\n".join([*lines, f"All pages: {page('README.md')}"])


def _epilog(verb: str) -> str:
    """What follows the options: examples, exit codes, the page."""
    examples = "".join(f"\n  {example}" for example in EXAMPLES[verb])
    more = page(f"verbs/{verb}.md")
    return f"examples:{examples}\n\nExit codes: {exit_codes(verb)}.\nMore: {more}"


def exit_codes(verb: str) -> str:
    """The exit codes of a verb, in words."""
    return _OTHER_EXIT_CODES.get(verb, _EXIT_CODES)


def _module_name(verb: str) -> str:
    return verb.replace("-", "_") + ("_" if keyword.iskeyword(verb) else "")


def _module(verb: str) -> "Any":
    return importlib.import_module(f"{__name__}.{_module_name(verb)}")


def arguments_module(verb: str) -> "Any":
    """The module that has a verb's add_arguments."""
    name = f"{__name__}.arguments.{_module_name(verb)}"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return _module(verb)


def _sentence_of(summary: str) -> str:
    return summary[0].upper() + summary[1:] + "."


def verb_parser(verb: str) -> argparse.ArgumentParser:
    """The parser of one verb, as `ncclscope VERB --help` shows it."""
    parser = argparse.ArgumentParser(
        prog=f"ncclscope {verb}",
        description=_sentence_of(COMMANDS[verb]),
        epilog=_epilog(verb),
        formatter_class=_Formatter,
    )
    arguments_module(verb).add_arguments(parser)
    return parser


def _parsers(
    verb: str | None, all_verbs: bool = True
) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser | None]:
    """The parser, and that of the verb."""
    parser = argparse.ArgumentParser(
        prog="ncclscope",
        description="See every NCCL call.",
        epilog=_verbs_in_groups() if all_verbs else None,
        formatter_class=_Formatter,
    )
    parser.add_argument("-V", "--version", action="version", version=f"ncclscope {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, help="one of these:")
    chosen = None
    for name, summary in COMMANDS.items():
        if not all_verbs and name != verb:  # each takes a millisecond, in front of every rank
            continue
        own_parser = verbs.add_parser(
            name,
            description=_sentence_of(summary),
            epilog=_epilog(name) if name == verb else None,
            formatter_class=_Formatter,
        )
        if name == verb:
            chosen = own_parser
            arguments_module(name).add_arguments(own_parser)
    return parser, chosen


def _similar(word: str, words: Iterable[str]) -> str:
    """The word that is meant, "" if none is close."""
    import difflib  # late: only mistakes need it

    return "".join(difflib.get_close_matches(word, list(words), 1))


def _parse(words: list[str]) -> argparse.Namespace:
    """The arguments of a verb. What is wrong is answered by the verb's own usage, and exits."""
    verb = next((word for word in words if not word.startswith("-")), None)
    if verb == "help":
        others = [word for word in words if word != "help" and not word.startswith("-")][:1]
        words, verb = [*others, "--help"], others[0] if others else None
    if verb is not None and verb not in COMMANDS:
        similar = _similar(verb, COMMANDS)
        hint = f"Did you mean `ncclscope {similar}`?" if similar else "See `ncclscope --help`"
        raise UsageError(f"there is no verb {verb}", hint)
    parser, chosen = _parsers(verb, all_verbs=verb is None or words[0] != verb)
    if not words:
        parser.print_help(sys.stderr)
        parser.exit(UsageError.exit_code)
    if verb is not None:
        words = getattr(arguments_module(verb), "preprocess_argv", list)(words)
    arguments, unknown = parser.parse_known_args(words)
    if unknown and chosen is not None:
        options = [option for action in chosen._actions for option in action.option_strings]
        similar = _similar(unknown[0].partition("=")[0], options)
        hint = f" (did you mean {similar}?)" if similar else ""
        chosen.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    return arguments


def _drop_output() -> None:
    """Keeps Python from writing at its exit what stdout did not take."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _sentence(error: OSError) -> str:
    """What a file, a directory or stdout refused, and what to do."""
    cause = error.strerror or str(error)
    what = printable(str(error.filename or ""))
    if isinstance(error, PermissionError):
        return (
            f"cannot open {what or 'a file'}: {cause}. Captures are private to the user "
            "whose job made them: run this as that user"
        )
    if not what:
        return f"cannot write the output: {cause}. Write it to another place"
    hint = "Free some space, or set TMPDIR to another disk" if error.errno == errno.ENOSPC else ""
    return f"cannot use {what}: {cause}{'. ' + hint if hint else ''}"


def _guard_mapped_files() -> None:
    """Has verbs that map files outlive files that are cut meanwhile."""
    if _ARRAYS in sys.modules:  # other verbs start without numpy
        sys.modules[_ARRAYS].guard_mapped_files()


def _has_lost_pages() -> bool:
    """Whether something of a mapped file was gone when it was read."""
    return _ARRAYS in sys.modules and sys.modules[_ARRAYS].pages_lost() > 0


def _ready_for_a_limit() -> AbstractContextManager[None]:
    """Has DuckDB, which verbs import, live with a limit of memory where one is set."""
    if not os.environ.get("NCCLSCOPE_MEMORY_LIMIT"):
        return nullcontext()
    from ncclscope.arrays.memory_limit import database_of_one_arena  # late: few set one

    return database_of_one_arena()


def _explain(error: Exception) -> int:
    """Says what went wrong, and gives the exit code; a mistake in ncclscope is raised again."""
    if isinstance(error, NcclscopeError):
        print_message(f"ncclscope: {printable(str(error))}")
        return error.exit_code
    if isinstance(error, BrokenPipeError):  # the reader of the output has ended, as `head` does
        _drop_output()
        return 0
    if isinstance(error, OSError):
        if not error.filename:
            _drop_output()
        print_message(f"ncclscope: {_sentence(error)}")
        return 1
    if _has_lost_pages():  # whatever followed from it
        print_message(f"ncclscope: {_CUT_FILE}")
        return 1
    if not is_out_of_memory(error):
        raise error
    print_message(f"ncclscope: {_OUT_OF_MEMORY}")
    return 1


def _run(words: list[str], interrupts: Interrupts) -> int:
    try:
        with _ready_for_a_limit():
            arguments = _parse(words)
            module = _module(arguments.verb)
        _guard_mapped_files()
        code = int(module.run(arguments))
        sys.stdout.flush()
        if _has_lost_pages():
            print_message(f"ncclscope: {_CUT_FILE}")
            return code or 1
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        # Libraries make other errors of an interrupt: DuckDB's import, its queries.
        return INTERRUPTED if interrupts.received else _explain(error)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb and returns the exit code."""
    prepare_streams()
    with Interrupts() as interrupts:
        code = _run(list(sys.argv[1:] if argv is None else argv), interrupts)
    if code == INTERRUPTED and argv is None and interrupts.received:
        leave_at_once(code)
    return code
