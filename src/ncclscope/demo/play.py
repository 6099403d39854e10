"""Plays transcripts of NCCL's callbacks through the plugin, one process per rank."""

import gzip
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ncclscope.errors import NcclscopeError
from ncclscope.launch.environment import Settings, recording_variables
from ncclscope.native import player_path, plugin_path

_TIMEOUT_S = 120


def bundled_transcripts() -> list[Path]:
    """The transcripts that come with the package, one file per rank."""
    return sorted(Path(__file__).parent.glob("rank*.jsonl.gz"))


def _unpack(transcript: Path, directory: Path) -> Path:
    plain = directory / transcript.name.removesuffix(".gz")
    with gzip.open(transcript, "rb") as source, plain.open("wb") as target:
        shutil.copyfileobj(source, target)
    return plain


def play(transcripts: Sequence[Path], settings: Settings, options: Sequence[str] = ()) -> list[int]:
    """Records the transcripts into `settings.directory` and returns the players' exit codes."""
    variables = recording_variables(settings, plugin_path())
    with tempfile.TemporaryDirectory(prefix="ncclscope-") as scratch:
        players = []
        for rank, transcript in enumerate(transcripts):
            environment = {
                **os.environ,
                **variables,
                "RANK": str(rank),
                "WORLD_SIZE": str(len(transcripts)),
            }
            plain = _unpack(transcript, Path(scratch))
            command = [str(player_path()), "play", str(plain), *options]
            players.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL))
        try:
            return [player.wait(_TIMEOUT_S) for player in players]
        except subprocess.TimeoutExpired:
            for player in players:
                player.kill()
            raise NcclscopeError(f"the player did not end within {_TIMEOUT_S} s") from None
