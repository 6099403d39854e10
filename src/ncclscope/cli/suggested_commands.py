"""Commands to try next, in words that work when they are copied: this program is called as it was,
and `ncclscope` only where the shell finds it by that name.
"""

import os
import shlex
import sys
from pathlib import Path


def _is_found_as(name: str, path: str) -> bool:
    """Whether the shell takes the name for that very file."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    found = (
        file for file in (Path(folder, name) for folder in folders) if os.access(file, os.X_OK)
    )
    return next((os.path.abspath(file) == os.path.abspath(path) for file in found), False)


def _short(path: str) -> str:
    """From here, where that is down the tree."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def python_words() -> list[str]:
    """The interpreter that has this package, for `-m`."""
    known = next((name for name in ("python", "python3") if _is_found_as(name, sys.executable)), "")
    return [known or _short(sys.executable)]


def own_words() -> list[str]:
    """What runs this program again."""
    script = sys.argv[0]
    if Path(script).name == "__main__.py":
        return [*python_words(), "-m", "ncclscope"]
    return ["ncclscope"] if _is_found_as("ncclscope", script) else [script]


def command(*words: str | Path) -> str:
    """A command of this program, to be copied into a shell."""
    return shlex.join([*own_words(), *map(str, words)])
