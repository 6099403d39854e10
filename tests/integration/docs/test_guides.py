"""Guides: every command runs, and says what the page says."""

import re
import shlex
from pathlib import Path

import pytest

from ncclscope.cli import COMMANDS
from tests.support.paths import ROOT
from tests.support.player import ncclscope
from tools import guides

PAGES = guides.pages()


def answer(command: str, folder: Path) -> str:
    """What a command prints. Verbs that only read run in a fork of a process that has imported
    everything: starting Python takes most of their time.
    """
    simple = re.fullmatch(r"ncclscope ((?!run|serve)[^|;&>\n]*)(.*)\n", command)
    if not simple:
        return guides.run(command, folder)
    done = ncclscope(*shlex.split(simple[1]), cwd=folder)
    (folder / "printed").write_text(done.stdout + done.stderr)
    return guides.run(f"(cat printed; exit {done.returncode}) {simple[2]}", folder)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_answer_as_the_page_says(page: Path, tmp_path: Path) -> None:
    blocks = guides.blocks(page.read_text())
    assert any(block.patterns for block in blocks)
    for block in blocks:
        printed = " ".join(" ".join(answer(c, tmp_path) for c, _ in block.commands).split())
        shown = " ".join(" ".join(output for _, output in block.commands).split())
        for pattern in block.patterns:
            assert re.search(pattern, shown), "the page is not current: run python -m tools.guides"
            assert re.search(pattern, printed), printed


def test_all_blocks_are_found() -> None:
    for page in PAGES:
        text = page.read_text()
        assert len(guides.blocks(text)) == text.count("```console") + text.count("<!-- run -->")


def test_pages_of_messages_exist() -> None:
    from ncclscope import documentation

    for verb in COMMANDS:
        assert Path(documentation.page(f"verbs/{verb}.md")).is_file()
    sources = (ROOT / "src" / "ncclscope").rglob("*.py")
    names = [
        name
        for source in sources
        for name in re.findall(r"page\(['\"]([\w/-]+\.md)['\"]\)", source.read_text())
    ]
    assert "simulation.md" in names
    assert all((ROOT / "docs" / name).is_file() for name in names)
