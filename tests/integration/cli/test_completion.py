"""Completion in real shells, and man pages as `man` shows them."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ncclscope.cli import COMMANDS
from ncclscope.cli.completion_scripts import SCRIPTS
from ncclscope.cli.verb_options import all_verbs
from tests.support.paths import ROOT
from tests.support.player import ncclscope


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the scripts, as the verb prints them."""
    directory = tmp_path_factory.mktemp("scripts")
    for shell in SCRIPTS:
        printed = ncclscope("completion", shell)
        assert printed.returncode == 0, printed.stderr
        (directory / shell).write_text(printed.stdout)
    return directory


def in_bash(script: Path, *words: str) -> list[str]:
    """What bash offers for the last of these words."""
    code = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ncclscope; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    command = ["bash", "--norc", "-c", code, "bash", str(script), "ncclscope", *words]
    printed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not printed.stderr
    return printed.stdout.split()


def in_fish(script: Path, line: str) -> list[str]:
    """What fish offers at the end of a line."""
    command = ["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not printed.stderr
    return [offer.split("\t")[0] for offer in printed.stdout.splitlines()]


def in_zsh(script: Path, typed: str, until: str, home: Path) -> str:
    """What a zsh on a terminal shows after keys, as soon as it contains `until`."""
    pid, terminal = pty.fork()
    if pid == 0:
        environment = {**os.environ, "TERM": "dumb", "HOME": str(home), "PS1": "> "}
        os.execvpe("zsh", ["zsh", "-f", "-i"], environment)
    shown = ""
    try:
        setup = f"autoload -U compinit; compinit -u -d {home}/dump; source {script}; echo rea''dy\n"
        os.write(terminal, setup.encode())
        for text, answer in ((b"", "ready"), (typed.encode(), until)):
            os.write(terminal, text)
            while answer not in shown and select.select([terminal], [], [], 60)[0]:
                shown += os.read(terminal, 65536).decode(errors="replace")
                shown = re.sub(".\x08", "", shown)  # zsh takes back the space after a word
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(terminal)
    return shown


def test_bash_offers_verbs_options_and_values(scripts: Path) -> None:
    script = scripts / "bash"
    assert {*COMMANDS, "help"} <= set(in_bash(script, ""))
    assert in_bash(script, "rep") == ["report"]
    assert in_bash(script, "help", "rep") == ["report"]
    assert in_bash(script, "report", "--ht") == ["--html"]
    assert in_bash(script, "run", "--mode", "") == ["profile", "trace", "full"]
    assert in_bash(script, "run", "--mode", "=", "tr") == ["trace"]
    assert in_bash(script, "completion", "f") == ["fish"]
    assert in_bash(script, "report", "") == []  # files, by bash itself
    assert in_bash(script, "run", "--", "--mo") == []


def test_bash_offers_every_option_of_every_verb(scripts: Path) -> None:
    for verb in all_verbs()[::5]:
        offered = set(in_bash(scripts / "bash", verb.name, "--"))
        assert offered == {
            max(option.spellings, key=len)
            for option in verb.options
            if any(spelling.startswith("--") for spelling in option.spellings)
        }


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_offers_verbs_options_and_values(scripts: Path) -> None:
    script = scripts / "fish"
    assert {*COMMANDS, "help"} <= set(in_fish(script, "ncclscope "))
    assert in_fish(script, "ncclscope report --ht") == ["--html"]
    assert sorted(in_fish(script, "ncclscope run --mode ")) == ["full", "profile", "trace"]
    assert in_fish(script, "ncclscope completion b") == ["bash"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_offers_verbs_options_and_values(scripts: Path, tmp_path: Path) -> None:
    shown = in_zsh(scripts / "zsh", "ncclscope ru\t--mo\tpr\t", "--mode profile", tmp_path)
    assert "ncclscope run --mode profile" in shown


def test_man_pages_are_read_without_a_complaint(tmp_path: Path) -> None:
    tool = ROOT / "tools" / "man_pages.py"
    made = subprocess.run([sys.executable, "-I", tool, tmp_path], capture_output=True, text=True)
    assert not made.stderr
    pages = {path.stem for path in tmp_path.glob("*.1")}
    assert pages == {"ncclscope", *(f"ncclscope-{verb}" for verb in COMMANDS)}
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    command = ["groff", "-man", "-Kutf8", "-Tutf8", "-ww", "-rHY=0", *sorted(tmp_path.glob("*.1"))]
    shown = subprocess.run(command, capture_output=True, text=True)
    assert not shown.stderr
    assert "ncclscope report job --html report.html" in shown.stdout
