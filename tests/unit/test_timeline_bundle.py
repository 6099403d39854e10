"""The page's TypeScript: its own tests pass, and what is committed was built from it."""

import shutil
import subprocess
from pathlib import Path

import pytest

WEB = Path(__file__).parents[2] / "web"
STATIC = Path(__file__).parents[2] / "src" / "ncclscope" / "web" / "static"
_MARK = WEB / "node_modules" / ".installed"


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        cwd=WEB,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    """esbuild, TypeScript and vitest in the versions that package.json names."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip(
            "*** no npm: THE BUNDLE IS NOT CHECKED; `make packages` as root installs it ***"
        )
    wanted = (WEB / "package.json").read_text()
    if not _MARK.exists() or _MARK.read_text() != wanted:
        ran = run(
            "npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"
        )
        if ran.returncode != 0:
            pytest.skip(
                f"*** npm cannot install: THE BUNDLE IS NOT CHECKED *** {ran.stderr[-300:]}"
            )
        _MARK.write_text(wanted)


def test_the_bundle_is_current(tmp_path: Path) -> None:
    built = run("node", "build.mjs", tmp_path)
    assert built.returncode == 0, built.stderr
    for path in sorted(tmp_path.iterdir()):
        assert path.read_bytes() == (STATIC / path.name).read_bytes(), (
            f"{path.name} is not what web/ builds: run `npm run build` in web/ and commit it"
        )
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in STATIC.iterdir()}


def test_types_and_the_drawing_model() -> None:
    checked = run("npx", "tsc", "--noEmit")
    assert checked.returncode == 0, checked.stdout
    tested = run("npx", "vitest", "run")
    assert tested.returncode == 0, tested.stdout + tested.stderr
