"""Plays transcripts and synthetic load through the real plugin, and gives back what `ncclscope dump
--json` prints.
"""

import functools
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ncclscope.native import player_path, plugin_path
from tests.support.command_server import CommandServer
from tests.support.exhaustive import IS_EXHAUSTIVE
from tests.support.paths import DATA
from tests.support.waiting import eventually

TRANSCRIPTS = DATA / "transcripts"
FOLDERS = sorted(path.name for path in TRANSCRIPTS.iterdir() if path.is_dir())
# One job of each interface, and one that hangs: for what depends on callbacks, not on the job. All
# of them in an exhaustive run.
_ONE_OF_EACH = {name.split("-")[1]: name for name in reversed(FOLDERS)}.values()
INTERFACE_FOLDERS = [
    name for name in FOLDERS if IS_EXHAUSTIVE or name in _ONE_OF_EACH or "hang" in name
]


def transcript_files(folder: str) -> list[Path]:
    """One file per rank."""
    return sorted((TRANSCRIPTS / folder).glob("*.jsonl.gz"))


def read_transcript(path: Path) -> list[dict[str, Any]]:
    """The callbacks of one process."""
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


def write_transcript(path: Path, lines: Iterable[dict[str, Any]]) -> Path:
    """A transcript of our own making."""
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    return path


def recording(capture: Path, mode: str = "full", **variables: str) -> dict[str, str]:
    """An environment in which the plugin records into `capture`, with GPU times from KernelCh: the
    player has no CUDA.
    """
    base = {name: value for name, value in os.environ.items() if not name.startswith("NCCL")}
    return base | {
        "NCCL_PROFILER_PLUGIN": str(plugin_path()),
        "NCCLSCOPE_DIR": str(capture),
        "NCCLSCOPE_MODE": mode,
        "NCCLSCOPE_GPU_TIMING": "kernel",
        **variables,
    }


def player(
    *arguments: str | Path | int, env: dict[str, str], timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Runs the player to its end."""
    command = [str(player_path()), *(str(argument) for argument in arguments)]
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=timeout, check=False
    )


class Player(subprocess.Popen[str]):
    """A player that does not outlive a test that fails: some play for ever."""

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, value, traceback)


def start_player(*arguments: str | Path | int, env: dict[str, str]) -> Player:
    """Starts the player."""
    command = [str(player_path()), *(str(argument) for argument in arguments)]
    return Player(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def folder_of(capture: Path) -> Path:
    """The folder of a capture's only process, once the process has written its live page."""
    return eventually(lambda: next(capture.glob("*/live"), None)).parent


def play_job(files: Sequence[Path], capture: Path, *options: str, mode: str = "full") -> list[int]:
    """Plays one process per file, all at once; returns exit codes."""
    players = []
    for rank, file in enumerate(files):
        plain = capture.parent / f"{capture.name}.{file.name.removesuffix('.gz')}"
        plain.write_bytes(
            gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        )
        env = recording(capture, mode, RANK=str(rank), WORLD_SIZE=str(len(files)))
        players.append(start_player("play", plain, *options, env=env))
    for one in players:
        one.communicate(timeout=120)
    return [one.returncode for one in players]


def ncclscope(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs the command line in a process of its own: a fork, unless it needs a fresh interpreter."""
    words = [str(argument) for argument in arguments]
    if not set(options) - {"cwd", "timeout", "env"}:
        server, environment = _command_server(), options.get("env", os.environ)
        if server.serves(environment):
            cwd = str(options["cwd"]) if "cwd" in options else None
            return server.run(words, cwd, options.get("timeout", 120), environment)
    command = [sys.executable, "-m", "ncclscope", *words]
    return subprocess.run(
        command, **{"capture_output": True, "text": True, "timeout": 120, "check": False} | options
    )


def shown_on_terminal(*arguments: str | Path, **variables: str) -> str:
    """What a terminal gets of a command, with these variables."""
    words = [str(argument) for argument in arguments]
    return _command_server().run_on_terminal(words, os.environ | variables)


@functools.cache
def _command_server() -> CommandServer:
    return CommandServer()


def seconds_of_commands() -> float:
    """CPU time of all commands that `ncclscope` ran in forks."""
    return _command_server().seconds if _command_server.cache_info().currsize else 0.0


def dump(capture: Path) -> list[dict[str, Any]]:
    """All events of a capture, as users get them."""
    printed = ncclscope("dump", "--json", capture)
    assert printed.returncode == 0, printed.stderr
    return [json.loads(line) for line in printed.stdout.splitlines()]
