"""Runs the commands of docs/guides and writes what they print into the pages.

`python -m tools.guides [PAGE …]`. In a block of `console` every line after `$ ` is a command of
bash, with lines after `> ` that continue it, run in the page's own empty folder. What follows is
its output; `…` stands for output that is not shown. `<!-- must say: PATTERN -->` after a block is
what tests look for in it. A block of `sh` with `<!-- run -->` after it is run as it is: files that
a reader makes are easier to copy without prompts.
"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

GUIDES = Path(__file__).parents[1] / "docs" / "guides"
_BLOCK = re.compile(
    r"^```console\n(.*?)^```\n((?:<!-- must say: .*? -->\n)*)|^```sh\n([^`]*)^```\n<!-- run -->\n",
    re.M | re.S,
)
_ELIDED = "…\n"
_WIDTH = 80  # of a terminal when it is opened; more does not fit beside the site's lists either


@dataclass(frozen=True)
class Block:
    """Commands with what they print, and patterns of which each must be found in it."""

    start: int  # in the page's text
    end: int
    commands: tuple[tuple[str, str], ...]
    is_script: bool  # without prompts and outputs
    patterns: tuple[str, ...]


def pages() -> list[Path]:
    """The guides whose commands are run; those of the notebook's are the demo's."""
    return sorted(page for page in GUIDES.glob("*.md") if page.stem != "notebook")


def blocks(text: str) -> list[Block]:
    """All blocks of commands of a page."""
    found = []
    for match in _BLOCK.finditer(text):
        if match[3] is not None:
            found.append(Block(match.start(3), match.end(3), ((match[3], ""),), True, ()))
            continue
        parts = re.split(r"^\$ (.*\n(?:> .*\n)*)", match[1], flags=re.M)[1:]
        commands = tuple(zip(parts[::2], parts[1::2], strict=True))
        patterns = tuple(re.findall(r"<!-- must say: (.*?) -->", match[2]))
        found.append(Block(match.start(1), match.end(1), commands, False, patterns))
    return found


def environment() -> dict[str, str]:
    """Variables of commands: no colours, nothing of a job around it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("NCCL", "RANK"))}
    return kept | {"PATH": path, "COLUMNS": str(_WIDTH), "LC_ALL": "C.UTF-8", "TERM": "dumb"}


def run(command: str, folder: Path) -> str:
    """What a command prints into a pipe; its exit code must be 0."""
    done = subprocess.run(
        ["bash", "-c", re.sub("^> ", "", command, flags=re.M)],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{command}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def run_on_terminal(command: str, folder: Path) -> str:
    """What a command prints on a terminal, as a reader sees it; its exit code must be 0."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 50, _WIDTH, 0, 0))
    printed = b""
    with subprocess.Popen(
        ["bash", "-c", re.sub("^> ", "", command, flags=re.M)],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    ) as running:
        os.close(theirs)
        with suppress(OSError):  # EIO: nobody can write to it any more
            while piece := os.read(ours, 1 << 16):
                printed += piece
    os.close(ours)
    if running.returncode:
        raise SystemExit(f"{command}: exit code {running.returncode}\n{printed.decode()}")
    return printed.decode()


def filled(text: str, folder: Path) -> str:
    """The page with what its commands print now."""
    pieces, place = [], 0
    for block in blocks(text):
        lines = []
        for command, shown in block.commands:
            printed = run_on_terminal(command, folder).replace(f"{folder}/", "")
            printed = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
            if block.is_script:
                lines.append(command)
                continue
            lines.append(f"$ {command}{_ELIDED if shown == _ELIDED else printed.lstrip(chr(10))}")
        pieces += [text[place : block.start], "".join(lines)]
        place = block.end
    return "".join([*pieces, text[place:]])


def main() -> None:
    """Fills in the pages that the command line names, or all."""
    for page in [GUIDES / name for name in sys.argv[1:]] or pages():
        with tempfile.TemporaryDirectory() as scratch:
            page.write_text(filled(page.read_text(), Path(scratch)))


if __name__ == "__main__":
    main()
