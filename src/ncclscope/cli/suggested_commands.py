"""Commands to try next, which work when they are copied: they start this program as it was started,
and as `ncclscope` only if the shell finds it by that name.
"""

import os
import shlex
import sys
from pathlib import Path


def _shell_finds(name: str, path: str) -> bool:
    """Whether the shell runs that file for this name."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    candidates = (Path(folder, name) for folder in folders)
    first = next((file for file in candidates if os.access(file, os.X_OK)), None)
    return first is not None and os.path.abspath(first) == os.path.abspath(path)


def _short(path: str) -> str:
    """The path relative to the current directory, if it is below that."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def python_words() -> list[str]:
    """The Python interpreter that runs this program."""
    names = (name for name in ("python", "python3") if _shell_finds(name, sys.executable))
    return [next(names, "") or _short(sys.executable)]


def own_words() -> list[str]:
    """The words that run this program again."""
    script = sys.argv[0]
    if Path(script).name == "__main__.py":
        return [*python_words(), "-m", "ncclscope"]
    return ["ncclscope"] if _shell_finds("ncclscope", script) else [script]


def command(*words: str | Path) -> str:
    """A command of this program, quoted for a shell."""
    return shlex.join([*own_words(), *map(str, words)])
