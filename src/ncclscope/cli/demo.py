"""`ncclscope demo`."""

import argparse
import time
from pathlib import Path

from ncclscope.capture.tally import ProcessTally, tally_capture
from ncclscope.demo.play import bundled_transcripts, play
from ncclscope.errors import NcclscopeError
from ncclscope.launch.environment import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the capture goes."""
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="the capture (default: ./ncclscope-demo-<time>)"
    )


def table_lines(tallies: list[ProcessTally]) -> list[str]:
    """Events by type, a column per rank."""
    ranks = [tally.identity.get("env.RANK", "?") for tally in tallies]
    kinds = [kind for kind in tallies[0].kinds if any(tally.kinds[kind] for tally in tallies)]
    lines = [f"  {'event':<14}" + "".join(f"{'rank ' + rank:>10}" for rank in ranks)]
    for kind in kinds:
        lines.append(f"  {kind:<14}" + "".join(f"{tally.kinds[kind]:>10,}" for tally in tallies))
    lines.append(f"  {'all':<14}" + "".join(f"{tally.events:>10,}" for tally in tallies))
    lines.append(f"  {'dropped':<14}" + "".join(f"{tally.dropped:>10,}" for tally in tallies))
    return lines


def run(arguments: argparse.Namespace) -> int:
    """Plays the bundled job through the real plugin and shows what was recorded."""
    directory = Path(arguments.output or time.strftime("ncclscope-demo-%Y%m%d-%H%M%S")).absolute()
    transcripts = bundled_transcripts()
    print(
        f"Playing the NCCL callbacks of a real job ({len(transcripts)} ranks, NCCL 2.28.9, H200) …"
    )
    codes = play(transcripts, Settings(directory, mode="full"))
    if any(codes):
        raise NcclscopeError(f"the player failed with exit code {max(codes)}")
    tallies = tally_capture(directory)
    print("\n".join(["", *table_lines(tallies), ""]))
    shown = directory.relative_to(Path.cwd()) if directory.is_relative_to(Path.cwd()) else directory
    print(f"next: ncclscope dump {shown}")
    return 0
