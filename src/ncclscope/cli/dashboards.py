"""`ncclscope dashboards`."""

import argparse
import shutil
from pathlib import Path

from ncclscope.errors import NcclscopeError

FOLDER = Path(__file__).parents[1] / "dashboards"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds where the files go."""
    parser.add_argument(
        "-o", "--output", default=".", metavar="DIR", help="directory of the files (default: here)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Copies Prometheus rules and Grafana dashboards; files of these names are replaced."""
    directory = Path(arguments.output)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file in sorted(FOLDER.iterdir()):
            shutil.copyfile(file, directory / file.name)
            print(directory / file.name)
    except OSError as error:
        message = f"cannot write {error.filename or directory}: {error.strerror}"
        raise NcclscopeError(message, "Name another directory with -o") from None
    return 0
