"""Completion scripts for shells, made of the verbs' options. They need nothing but the shell."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ncclscope.cli.verb_options import Option, Verb

    Verbs = tuple[Verb, ...]

_BASH = """\
# bash completion of ncclscope: eval "$(ncclscope completion bash)"
_ncclscope() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
    local verb="" word words="" values=""
    COMPREPLY=()
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        [[ $word == -- ]] && return  # what follows is a command of the user's
        [[ -z $verb && $word != -* ]] && verb=$word
    done
    if [[ $previous == "=" ]]; then  # bash splits --mode=trace
        previous=${{COMP_WORDS[COMP_CWORD-2]}}
    elif [[ $current == "=" ]]; then
        current=""
    fi
    case "$verb $previous" in
{values}
    esac
    case $verb in
        "") words="{verbs} help --help --version" ;;
        help) values="{verbs}" ;;
{words}
    esac
    if [[ -n $values ]]; then
        COMPREPLY=($(compgen -W "$values" -- "$current"))
    elif [[ -z $verb || $current == -* ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$current"))
    fi
}}
complete -o bashdefault -o default -F _ncclscope ncclscope
"""
_ZSH = """\
#compdef ncclscope
# zsh completion of ncclscope: eval "$(ncclscope completion zsh)"
_ncclscope() {{
    local -a verbs=(
{verbs}
    )
    if (( CURRENT == 2 )); then
        _describe verb verbs
        return
    fi
    shift words
    (( CURRENT-- ))
    case $words[1] in
        help) _describe verb verbs ;;
{cases}
    esac
}}
if [[ $funcstack[1] == _ncclscope ]]; then
    _ncclscope "$@"
else
    compdef _ncclscope ncclscope
fi
"""


def _long(option: "Option") -> str:
    """The spelling that completion offers."""
    return max(option.spellings, key=len)


def _positional_choices(verb: "Verb") -> tuple[str, ...]:
    return tuple(c for option in verb.options if not option.spellings for c in option.choices)


def bash(verbs: "Verbs") -> str:
    """The script for bash."""
    values, words = [], []
    for verb in verbs:
        named = [option for option in verb.options if option.spellings]
        for option in named:
            if option.choices:
                cases = "|".join(f'"{verb.name} {spelling}"' for spelling in option.spellings)
                values.append(f'        {cases}) values="{" ".join(option.choices)}" ;;')
        own = [f'words="{" ".join(map(_long, named))}"']
        choices = _positional_choices(verb)
        if choices:
            own.append(f'[[ $current != -* ]] && values="{" ".join(choices)}"')
        words.append(f"        {verb.name}) {'; '.join(own)} ;;")
    names = " ".join(verb.name for verb in verbs)
    return _BASH.format(verbs=names, values="\n".join(values), words="\n".join(words))


def _quoted(text: str) -> str:
    """A text in single quotes, as POSIX shells and fish read it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "'\\''") + "'"


def _zsh_text(text: str) -> str:
    """A text within a specification of _arguments."""
    return re.sub(r"([\[\]:\\])", r"\\\1", text)


def _zsh_option(option: "Option") -> str:
    """A specification of _arguments."""
    action = f"({' '.join(option.choices)})" if option.choices else "_files"
    value = f":{_zsh_text(option.value)}:{action}" if option.value else ""
    if not option.spellings:
        return "'" + f"*:{_zsh_text(option.value)}:{action}".replace("'", "'\\''") + "'"
    text = f"[{_zsh_text(option.help)}]{value}".replace("'", "'\\''")
    if option.repeats:
        return f"'*{_long(option)}{text}'"
    others = " ".join(option.spellings)
    return f"'({others}){_long(option)}{text}'"


def zsh(verbs: "Verbs") -> str:
    """The script for zsh."""
    lines = [f"        {_quoted(f'{verb.name}:{verb.summary}')}" for verb in verbs]
    cases = [
        f"        {verb.name}) _arguments {' '.join(map(_zsh_option, verb.options))} ;;"
        for verb in verbs
    ]
    return _ZSH.format(verbs="\n".join(lines), cases="\n".join(cases))


def _fish_option(verb: str, option: "Option") -> str:
    words = [f"complete -c ncclscope -n '__fish_seen_subcommand_from {verb}'"]
    for spelling in option.spellings:
        name = spelling.lstrip("-")
        words.append(f"-{'l' if spelling.startswith('--') else 's'} {name}")
    if option.choices:
        words.append(f"{'-x' if option.spellings else '-f'} -a {_fish(' '.join(option.choices))}")
    elif option.value and option.spellings:
        words.append("-r")
    return " ".join([*words, f"-d {_fish(option.help)}"])


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish(verbs: "Verbs") -> str:
    """The script for fish."""
    lines = ["# fish completion of ncclscope: ncclscope completion fish | source"]
    first = "complete -c ncclscope -f -n __fish_use_subcommand"
    lines += [f"{first} -a {verb.name} -d {_fish(verb.summary)}" for verb in verbs]
    lines.append(f"{first} -a help -d 'show the help of a verb'")
    names = " ".join(verb.name for verb in verbs)
    lines.append(f"complete -c ncclscope -f -n '__fish_seen_subcommand_from help' -a '{names}'")
    for verb in verbs:
        lines += [
            _fish_option(verb.name, option)
            for option in verb.options
            if option.spellings or option.choices
        ]
    return "\n".join(lines) + "\n"


SCRIPTS: dict[str, Callable[["Verbs"], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
