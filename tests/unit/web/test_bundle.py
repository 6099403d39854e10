"""The page's TypeScript: its own tests pass, and what is committed was built from it."""

from pathlib import Path

import pytest

from tests.support import npm
from tests.support.paths import ROOT
from tools import page_constants

WEB = ROOT / "web"
STATIC = ROOT / "src" / "ncclscope" / "web" / "static"


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    """biome, esbuild, TypeScript and vitest."""
    npm.install(WEB, "THE BUNDLE IS NOT CHECKED")


def test_the_bundle_is_current(tmp_path: Path) -> None:
    built = npm.run(WEB, "node", "build.mjs", tmp_path)
    assert built.returncode == 0, built.stderr
    for path in sorted(tmp_path.iterdir()):
        assert path.read_bytes() == (STATIC / path.name).read_bytes(), (
            f"{path.name} is not what web/ builds: run `npm run build` in web/ and commit it"
        )
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in STATIC.iterdir()}


def test_lines_of_typescript_are_shorter_than_120_columns() -> None:
    """The formatter breaks code, not texts and comments."""
    for path in [*WEB.glob("src/*.ts"), *WEB.glob("test/*.ts")]:
        long = [line for line in path.read_text().splitlines() if len(line) >= 120]
        assert long == [], path.name


def test_what_the_page_shares_with_its_server_is_current() -> None:
    current = page_constants.TARGET.read_text()
    assert current == page_constants.text(), "run `python -m tools.page_constants`, then build"


def test_format_lint_types_and_the_drawing_model() -> None:
    checked = npm.run(WEB, "npm", "run", "check")
    assert checked.returncode == 0, checked.stdout
    tested = npm.run(WEB, WEB / "node_modules" / ".bin" / "vitest", "run")
    assert tested.returncode == 0, tested.stdout + tested.stderr
