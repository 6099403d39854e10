"""docs/architecture.md has every package, with what goes in and what comes out."""

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tools import packages


@pytest.mark.parametrize("package", packages.packages())
def test_a_package_says_what_goes_in_and_what_comes_out(package: str) -> None:
    """In the first line: `What it is. In: what it takes. Out: what it gives.`"""
    assert packages.parts_of(packages.first_line(package)) is not None


def test_the_page_is_current() -> None:
    assert packages.PAGE.read_text() == packages.page(), "run `python -m tools.packages`"


def test_layers_are_listed_once() -> None:
    """Pages link to pyproject.toml instead of repeating it."""
    for page in (ROOT / "CONTRIBUTING.md", packages.PAGE):
        text = page.read_text()
        assert "pyproject.toml)" in text
        assert not re.search(r"\bcli\b *(→|->|>) *\w+ *(→|->|>|\|)", text)


def links_of(page: Path) -> set[Path]:
    """Files that a page links to."""
    targets = re.findall(r"\]\(([^)\s#]+)", page.read_text())
    return {(page.parent / target).resolve() for target in targets if "://" not in target}


def test_every_page_is_listed() -> None:
    """docs/README.md links to every page, or to a page that lists its folder."""
    docs = ROOT / "docs"
    index = links_of(docs / "README.md")
    for lists in ("deploy/README.md", "verbs/import.md", "measurements.md"):
        assert (docs / lists).resolve() in index
        index |= links_of(docs / lists)
    pages = {page.resolve() for page in docs.rglob("*.md")} - {(docs / "README.md").resolve()}
    assert not pages - index
