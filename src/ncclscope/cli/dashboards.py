"""`ncclscope dashboards`."""

import argparse
from pathlib import Path

from ncclscope.errors import NcclscopeError
from ncclscope.output_files import write_text

FOLDER = Path(__file__).parents[1] / "dashboards"


def run(arguments: argparse.Namespace) -> int:
    """Copies Prometheus rules and Grafana dashboards; files of these names are replaced."""
    directory = Path(arguments.output)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file in sorted(FOLDER.iterdir()):
            write_text(directory / file.name, file.read_text())
            print(directory / file.name)
    except OSError as error:
        message = f"cannot write {error.filename or directory}: {error.strerror}"
        raise NcclscopeError(message, "Name another directory with -o") from None
    return 0
