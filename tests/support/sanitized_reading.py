"""Reads captures with compiled loops that a sanitizer watches: `python -m tests.support.sanitized_reading
LIBRARY CAPTURE… `, with the sanitizer's runtime preloaded. Damaged copies are read too.
"""

import random
import shutil
import sys
import tempfile
from pathlib import Path

from ncclscope.arrays import library
from ncclscope.capture.housekeeping import process_folders
from tests.support.corruption import Damager
from tests.support.exhaustive import sample

COPIES = 12


def read(capture: Path) -> None:
    """Everything that compiled loops are used for."""
    from ncclscope.errors import NcclscopeError
    from ncclscope.model.build import open_model
    from ncclscope.model.detail_schema import DETAILS
    from ncclscope.model.detail_tables import details_of

    try:
        model = open_model(capture)
        for table in DETAILS:
            for _ in details_of(model, table):
                pass
    except NcclscopeError as error:
        print(error)


def main() -> None:
    watched, *captures = map(Path, sys.argv[1:])
    library.arrays_library_path = lambda: watched  # type: ignore[assignment]
    for capture in captures:
        read(capture)
        for seed in sample(range(COPIES), 6):
            draw, damager = random.Random(seed), Damager(seed)
            with tempfile.TemporaryDirectory() as scratch:
                copy = Path(scratch) / "copy"
                shutil.copytree(capture, copy)
                files = [file for folder in process_folders(copy) for file in folder.glob("log.*")]
                for _ in range(draw.choice((1, 4, 16))):
                    damager.damage(draw.choice(files))
                read(copy)
    assert library.library()._name == str(watched)
    print("read")


if __name__ == "__main__":
    main()
