"""The documentation site builds: a broken link or anchor is an error."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.packages import needs
from tests.support.paths import ROOT

pytestmark = needs("mkdocs", "material")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "-d", folder]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_every_page_is_on_the_site_and_pictures_are_beside_them(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix("")
        folder = name.parent if name.name == "README" else name
        assert (site / folder / "index.html").is_file(), page
    for picture in (ROOT / "docs" / "pictures").iterdir():
        assert (site / "pictures" / picture.name).is_file()


def test_a_search_finds_the_guide_of_a_hang(site: Path) -> None:
    entries = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    hang = [entry for entry in entries if entry["location"].startswith("guides/hang/")]
    assert any("rank" in entry["text"] for entry in hang)
    assert all(entry.get("boost", 1) > 1 for entry in hang)


def test_nothing_comes_from_another_site(site: Path) -> None:
    page = (site / "index.html").read_text()
    sources = [part.partition('"')[0] for part in page.split('src="')[1:]]
    assert sources
    assert not [source for source in sources if "//" in source]
