"""Draws the plot of docs/guides/notebook.md: `python -m tools.plot_pictures`."""

import subprocess
import sys
import tempfile
from pathlib import Path

import ncclscope

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "plot-timeline.png"


def main() -> None:
    """Records the demo's job and draws its timeline."""
    with tempfile.TemporaryDirectory() as scratch:
        capture = Path(scratch) / "job"
        command = [sys.executable, "-m", "ncclscope", "demo", "-o", str(capture)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        ncclscope.open(capture).plot.timeline(until_s=0.8).save(PICTURE)


if __name__ == "__main__":
    main()
