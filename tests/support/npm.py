"""npm packages that tests use, installed once in the versions that a package.json names."""

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest


def run(folder: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """A command of Node's, in a folder."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def install(folder: Path, unchecked: str) -> None:
    """Makes node_modules what package.json asks for; without npm, skips and says what is unchecked."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip(f"*** no npm: {unchecked}; `make packages` as root installs it ***")
    wanted = (folder / "package.json").read_text()
    modules = folder / "node_modules"
    modules.mkdir(exist_ok=True)
    with (modules / ".installing").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run side by side
        mark = modules / ".installed"
        if mark.exists() and mark.read_text() == wanted:
            return
        ran = run(
            folder,
            "npm",
            "install",
            "--no-package-lock",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
        )
        if ran.returncode != 0:
            pytest.skip(f"*** npm cannot install: {unchecked} *** {ran.stderr[-300:]}")
        mark.write_text(wanted)
