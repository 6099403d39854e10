"""Writes the man pages: `python tools/man_pages.py DIR` makes DIR/ncclscope.1 and one of each verb.

They are made of the same parsers as `--help`. The build runs this with the standard library alone.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ncclscope._version import __version__
from ncclscope.cli import COMMANDS, GROUPS, exit_codes
from ncclscope.cli.examples import EXAMPLES
from ncclscope.cli.verb_options import Option, Verb, all_verbs


def _text(text: str) -> str:
    """A text that troff prints as it is."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(
        f"\\&{line}" if line.startswith((".", "'")) else line for line in escaped.splitlines()
    )


def _head(name: str, summary: str) -> list[str]:
    title = f'.TH {name.upper()} 1 "" "ncclscope {__version__}" "ncclscope"'
    return [title, ".SH NAME", f"{_text(name)} \\- {_text(summary)}"]


def _more(verb: str) -> list[str]:
    """Where there is more: a build does not know the folder that its pages will be in."""
    return [_text(f"`ncclscope {verb} --help` names the page with the details.")]


def _option(option: Option) -> list[str]:
    spelled = ", ".join(f"\\fB{_text(spelling)}\\fR" for spelling in option.spellings)
    value = f"\\fI{_text(option.value)}\\fR" if option.value else ""
    return [".TP", " ".join(part for part in (spelled, value) if part), _text(option.help or " ")]


def verb_page(verb: Verb) -> str:
    """The page of one verb."""
    lines = _head(f"ncclscope-{verb.name}", verb.summary)
    lines += [".SH SYNOPSIS", _text(verb.usage)]
    lines += [".SH DESCRIPTION", _text(f"{verb.summary[0].upper()}{verb.summary[1:]}.")]
    arguments = [option for option in verb.options if not option.spellings]
    options = [option for option in verb.options if option.spellings]
    for title, listed in (("ARGUMENTS", arguments), ("OPTIONS", options)):
        lines += [f".SH {title}"] if listed else []
        for option in listed:
            lines += _option(option)
    examples = [line for example in EXAMPLES[verb.name] for line in (_text(example), "")]
    lines += [".SH EXAMPLES", ".nf", *examples[:-1], ".fi"]
    lines += [".SH EXIT STATUS", _text(exit_codes(verb.name) + ".")]
    lines += [".SH SEE ALSO", ".BR ncclscope (1)", ".PP", *_more(verb.name)]
    return "\n".join(lines) + "\n"


def main_page() -> str:
    """The page of the program: all verbs."""
    lines = _head("ncclscope", "see every NCCL call")
    lines += [".SH SYNOPSIS", _text("ncclscope VERB [OPTION ...]")]
    lines += [".SH DESCRIPTION", "A profiler for NCCL. Each verb has a page of its own:"]
    lines.append(_text("man ncclscope-report."))
    for title, verbs in GROUPS.items():
        lines.append(f".SS {_text(title)}")
        for verb in verbs:
            lines += [".TP", f".BR ncclscope\\-{_text(verb)} (1)", _text(COMMANDS[verb])]
    return "\n".join(lines) + "\n"


def main(directory: Path) -> None:
    """Writes all pages."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "ncclscope.1").write_text(main_page())
    for verb in all_verbs():
        (directory / f"ncclscope-{verb.name}.1").write_text(verb_page(verb))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
