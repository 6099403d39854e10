"""Counts of work that a program does: the same on every machine, unlike its time."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def imported_modules(arguments: Sequence[str | Path], cwd: Path) -> set[str]:
    """Modules that a Python program imports, besides those that the interpreter itself needs."""

    def imports(*words: str | Path) -> set[str]:
        command = [sys.executable, "-X", "importtime", *map(str, words)]
        ran = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)
        lines = [line for line in ran.stderr.splitlines() if line.startswith("import time:")]
        return {line.rpartition("|")[2].strip() for line in lines[1:]}

    return imports(*arguments) - imports("-c", "pass")
